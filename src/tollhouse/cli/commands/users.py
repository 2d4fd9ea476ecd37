"""`tollhouse users`: the people of an account."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun, some
from tollhouse.cli.options import Account
from tollhouse.cli.output import Listing, Record, field
from tollhouse.cli.references import user_id
from tollhouse.cli.values import segment

app = noun("users", "Users: the people of an account, who create its keys.")

Id = Annotated[str, typer.Argument(metavar="USER", help="Id or name of the user.")]


@control_command(
    app,
    "create",
    "tollhouse users create Ada",
    "tollhouse users create Ada --email ada@acme.example",
)
async def create(
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person's name.")],
    email: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Their e-mail address.")
    ] = None,
    account: Account = None,
) -> Record:
    """Make a user of an account."""
    body = changes(name=name, email=email or None, account_id=account)
    return Record((await server.send("POST", "/users", body))["data"])


@control_command(app, "list", "tollhouse users list")
async def list_(server: Server, account: Account = None) -> Listing:
    """List the users of an account, oldest first."""
    columns = [field("id"), field("name"), field("email"), field("created_at", "created")]
    return Listing(await server.all_of("/users", account_id=account), columns)


@control_command(app, "show", "tollhouse users show Ada")
async def show(server: Server, user: Id, account: Account = None) -> Record:
    """Show a user."""
    path = f"/users/{segment(await user_id(server, user, account))}"
    return Record((await server.get(path, account_id=account))["data"])


@control_command(app, "set", "tollhouse users set Ada --email ada@acme.example")
async def set_(
    server: Server,
    user: Id,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The person's new name.")] = None,
    email: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help='Their e-mail address; "" removes it.'),
    ] = None,
    account: Account = None,
) -> Record:
    """Change the given fields of a user."""
    body = changes(name=name)
    if email is not None:
        body["email"] = email or None
    path = f"/users/{segment(await user_id(server, user, account))}"
    changed = await server.send("PATCH", path, some(body), query={"account_id": account})
    return Record(changed["data"])
