"""`tollhouse accounts`: who pays."""

from enum import StrEnum
from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun, some
from tollhouse.cli.default_account import remember
from tollhouse.cli.options import Programme, VaultWrites, switches
from tollhouse.cli.output import Column, Listing, Record, field
from tollhouse.cli.policies import PolicyFile, with_policy
from tollhouse.cli.references import account_id, chosen_account
from tollhouse.cli.values import segment
from tollhouse.kernel.start import StartError

app = noun("accounts", "Accounts: who pays. Each has workspaces, users, keys and credits.")


class Type(StrEnum):
    """How an account pays."""

    PREPAID = "prepaid"
    SUBSCRIPTION = "subscription"
    ENTERPRISE = "enterprise"
    INVOICE = "invoice"


Pays = Annotated[
    Type | None,
    typer.Option(
        "--type",
        help="How it pays: prepaid and subscription from its credits, enterprise and "
        "invoice afterwards.",
    ),
]
Exempt = Annotated[
    bool | None,
    typer.Option(
        "--free-limits-exempt/--no-free-limits-exempt",
        help="Exempt it from the limits on free models, or not.",
    ),
]
Id = Annotated[str, typer.Argument(metavar="ACCOUNT", help="Id or name of the account.")]


@control_command(
    app,
    "create",
    'tollhouse accounts create "Acme Ltd"',
    'tollhouse accounts create "Big Ltd" --type invoice --free-limits-exempt',
)
async def create(
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    pays: Pays = None,
    exempt: Exempt = None,
) -> Record:
    """Make an account with its default workspace; prepaid unless its type is given."""
    body = changes(name=name, type=pays, free_limits_exempt=exempt)
    made = await server.send("POST", "/accounts", body)
    return Record(
        {**made["data"], "workspace_id": made["workspace_id"]},
        note=f"Its first key: tollhouse keys create NAME --account {made['data']['id']}",
    )


@control_command(app, "list", "tollhouse accounts list", "tollhouse accounts list --json")
async def list_(server: Server) -> Listing:
    """List the accounts, oldest first."""
    chosen = await chosen_account(server, None)
    columns = [
        field("id"),
        field("name"),
        field("type"),
        field("created_at", "created"),
        Column("used", lambda account: "yes" if account["id"] == chosen else None),
    ]
    return Listing(await server.all_of("/accounts"), columns)


@control_command(app, "use", 'tollhouse accounts use "Acme Ltd"', "tollhouse accounts use --none")
async def use(
    server: Server,
    account: Annotated[
        str | None, typer.Argument(metavar="ACCOUNT", help="Id or name of the account.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the choice.")] = False,
) -> Record:
    """Set the default account of commands without --account, for this user and this server."""
    if (account is None) is not none:
        message = "name an account, or give --none"
        raise StartError(message)
    if account is None:
        remember(server.place, None)
        return Record({"account_id": None})
    path = f"/accounts/{segment(await account_id(server, account))}"
    found = (await server.get(path))["data"]
    remember(server.place, found["id"])
    return Record({"account_id": found["id"], "name": found["name"]})


@control_command(app, "show", "tollhouse accounts show ID", 'tollhouse accounts show "Acme Ltd"')
async def show(server: Server, account: Id) -> Record:
    """Show an account."""
    path = f"/accounts/{segment(await account_id(server, account))}"
    return Record(await with_policy(server, path, (await server.get(path))["data"], None))


@control_command(
    app,
    "set",
    'tollhouse accounts set ID --name "Acme Inc"',
    "tollhouse accounts set ID --type enterprise --free-limits-exempt",
    "tollhouse accounts set ID --policy policy.yaml",
    "tollhouse accounts set ID --programme on --vault-writes off",
)
async def set_(
    server: Server,
    account: Id,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its new name.")] = None,
    pays: Pays = None,
    exempt: Exempt = None,
    policy: PolicyFile = None,
    programme: Programme = None,
    vault_writes: VaultWrites = None,
) -> Record:
    """Change the given fields of an account; only an operator changes how it pays."""
    path = f"/accounts/{segment(await account_id(server, account))}"
    body = changes(name=name, type=pays, free_limits_exempt=exempt)
    body |= switches(programme, vault_writes)
    some({**body, **changes(policy=policy)})
    found = await (server.send("PATCH", path, body) if body else server.get(path))
    return Record(await with_policy(server, path, found["data"], policy))
