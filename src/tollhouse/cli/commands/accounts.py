"""`tollhouse accounts`: who pays."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun, some
from tollhouse.cli.output import Listing, Record, field
from tollhouse.cli.policies import PolicyFile, with_policy
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
    path = f"/accounts/{segment(account)}"
    return Record(await with_policy(server, path, (await server.get(path))["data"], None))


@control_command(
    app,
    "set",
    'tollhouse accounts set ID --name "Acme Inc"',
    "tollhouse accounts set ID --policy policy.yaml",
)
async def set_(
    server: Server,
    account: Id,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What people call it from now on.")
    ] = None,
    policy: PolicyFile = None,
) -> Record:
    """Give an account another name, or a policy."""
    path = f"/accounts/{segment(account)}"
    some(changes(name=name, policy=policy))
    if name is None:
        found = await server.get(path)
    else:
        found = await server.send("PATCH", path, {"name": name})
    return Record(await with_policy(server, path, found["data"], policy))
