"""`tollhouse accounts`: who pays."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import control_command, noun
from tollhouse.cli.output import Listing, Record, field
from tollhouse.cli.values import segment

app = noun("accounts", "Accounts: who pays. Each has workspaces, users, keys and credits.")

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the account.")]


@control_command(app, "create", 'tollhouse accounts create "Acme Ltd"')
async def create(
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What people call it.")],
) -> Record:
    """Make an account with its default workspace."""
    made = await server.send("POST", "/accounts", {"name": name})
    return Record(
        {**made["data"], "workspace_id": made["workspace_id"]},
        note=f"Its first key: tollhouse keys create NAME --account {made['data']['id']}",
    )


@control_command(app, "list", "tollhouse accounts list", "tollhouse accounts list --json")
async def list_(server: Server) -> Listing:
    """List the accounts, oldest first."""
    columns = [field("id"), field("name"), field("created_at", "created")]
    return Listing(await server.all_of("/accounts"), columns)


@control_command(app, "show", "tollhouse accounts show ID")
async def show(server: Server, account: Id) -> Record:
    """Show an account."""
    return Record((await server.get(f"/accounts/{segment(account)}"))["data"])


@control_command(app, "set", 'tollhouse accounts set ID --name "Acme Inc"')
async def set_(
    server: Server,
    account: Id,
    name: Annotated[str, typer.Option(metavar="NAME", help="What people call it from now on.")],
) -> Record:
    """Give an account another name."""
    changed = await server.send("PATCH", f"/accounts/{segment(account)}", {"name": name})
    return Record(changed["data"])
