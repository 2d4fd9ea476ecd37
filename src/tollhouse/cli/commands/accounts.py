"""`tollhouse accounts`, `workspaces` and `users`: who pays, the scopes inside, and the people."""

from typing import Annotated, Literal

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.commands.budgets import user_budgets_app, workspace_budgets_app
from tollhouse.cli.control import CommandGroup, changes, clearable, require_changes
from tollhouse.cli.options import (
    Account,
    Description,
    NewName,
    PlainHttp,
    PolicyFile,
    Programme,
    UserId,
    VaultWrites,
    WorkspaceId,
    switch_fields,
    with_policy,
)
from tollhouse.cli.output import Column, Record, Table, column
from tollhouse.cli.references import chosen_account, resource_path, set_default_account
from tollhouse.cli.values import slug_of
from tollhouse.kernel.errors import StartError

accounts_app = CommandGroup(
    "accounts", "Accounts: who pays. Each has workspaces, users, keys and credits."
)
Pays = Annotated[
    Literal["prepaid", "subscription", "enterprise", "invoice"] | None,
    Option(
        "--type",
        help="How it pays: prepaid and subscription from its credits, enterprise and "
        "invoice afterwards.",
    ),
]
Exempt = Annotated[
    bool | None,
    Option(
        "--free-limits-exempt/--no-free-limits-exempt",
        help="Exempt it from the limits on free models, or not.",
    ),
]
AccountId = Annotated[str, Argument(metavar="ACCOUNT", help="Id or name of the account.")]


@accounts_app.control(
    "create",
    'tollhouse accounts create "Acme Ltd"',
    'tollhouse accounts create "Big Ltd" --type invoice --free-limits-exempt',
)
async def create_account(
    server: Server,
    name: Annotated[str, Argument(metavar="NAME", help="Its name.")],
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


@accounts_app.control("list", "tollhouse accounts list", "tollhouse accounts list --json")
async def list_accounts(server: Server) -> Table:
    """List the accounts, oldest first."""
    chosen = await chosen_account(server, None)
    used = Column("used", lambda account: "yes" if account["id"] == chosen else None)
    columns = ["id", "name", "type", column("created_at", "created"), used]
    return Table(await server.list_all("/accounts"), columns)


@accounts_app.control("use", 'tollhouse accounts use "Acme Ltd"', "tollhouse accounts use --none")
async def use_account(
    server: Server,
    account: Annotated[
        str | None, Argument(metavar="ACCOUNT", help="Id or name of the account.")
    ] = None,
    none: Annotated[bool, Option("--none", help="Remove the choice.")] = False,
) -> Record:
    """Set the default account of commands without --account, for this user and this server."""
    if (account is None) is not none:
        raise StartError("name an account, or give --none")
    if account is None:
        set_default_account(server.place, None)
        return Record({"account_id": None})
    found = (await server.get(await resource_path(server, "account", account)))["data"]
    set_default_account(server.place, found["id"])
    return Record({"account_id": found["id"], "name": found["name"]})


@accounts_app.control("show", "tollhouse accounts show ID", 'tollhouse accounts show "Acme Ltd"')
async def show_account(server: Server, account: AccountId) -> Record:
    """Show an account."""
    return await with_policy(server, await resource_path(server, "account", account))


@accounts_app.control(
    "set",
    'tollhouse accounts set ID --name "Acme Inc"',
    "tollhouse accounts set ID --type enterprise --free-limits-exempt",
    "tollhouse accounts set ID --policy policy.yaml",
    "tollhouse accounts set ID --programme on --vault-writes off",
)
async def set_account(
    server: Server,
    account: AccountId,
    name: NewName = None,
    pays: Pays = None,
    exempt: Exempt = None,
    policy: PolicyFile = None,
    programme: Programme = None,
    vault_writes: VaultWrites = None,
) -> Record:
    """Change the given fields of an account; only an operator changes how it pays."""
    path = await resource_path(server, "account", account)
    body = changes(name=name, type=pays, free_limits_exempt=exempt)
    body |= switch_fields(programme, vault_writes)
    require_changes({**body, **changes(policy=policy)})
    return await with_policy(server, path, body, policy)


workspaces_app = CommandGroup(
    "workspaces", "Workspaces: the scopes inside an account that keys belong to."
)

workspaces_app.add_typer(workspace_budgets_app)


@workspaces_app.control(
    "create",
    'tollhouse workspaces create "Data team"',
    "tollhouse workspaces create Research --slug lab --account acme",
)
async def create_workspace(
    server: Server,
    name: Annotated[str, Argument(metavar="NAME", help="Its name.")],
    slug: Annotated[
        str | None, Option(metavar="SLUG", help="Its name in URLs; derived from NAME unless given.")
    ] = None,
    description: Description = None,
    account: Account = None,
) -> Record:
    """Make a workspace."""
    body = changes(name=name, slug=slug or slug_of(name), description=description or None)
    made = await server.send("POST", "/workspaces", {**body, **changes(account_id=account)})
    return Record(made["data"])


@workspaces_app.control("list", "tollhouse workspaces list")
async def list_workspaces(server: Server, account: Account = None) -> Table:
    """List the workspaces of an account, oldest first."""
    columns = ["id", "slug", "name", "description", column("created_at", "created")]
    return Table(await server.list_all("/workspaces", account_id=account), columns)


@workspaces_app.control("show", "tollhouse workspaces show default")
async def show_workspace(server: Server, workspace: WorkspaceId, account: Account = None) -> Record:
    """Show a workspace."""
    path = await resource_path(server, "workspace", workspace, account)
    return await with_policy(server, path, account_id=account)


@workspaces_app.control(
    "set",
    'tollhouse workspaces set lab --name "Research lab"',
    "tollhouse workspaces set lab --policy policy.yaml",
    "tollhouse workspaces set lab --programme off",
    "tollhouse workspaces set default --default-model openai/gpt-5",
)
async def set_workspace(
    server: Server,
    workspace: WorkspaceId,
    name: NewName = None,
    slug: Annotated[str | None, Option(metavar="SLUG", help="Its new name in URLs.")] = None,
    description: Description = None,
    policy: PolicyFile = None,
    programme: Programme = None,
    vault_writes: VaultWrites = None,
    plain_http: PlainHttp = None,
    default_model: Annotated[
        str | None,
        Option(
            metavar="MODEL", help='The model of interns that have none of their own; "" for none.'
        ),
    ] = None,
    account: Account = None,
) -> Record:
    """Change the given fields of a workspace."""
    body = changes(name=name, slug=slug) | switch_fields(programme, vault_writes, plain_http)
    body |= clearable(description=description, default_text_model=default_model)
    require_changes({**body, **changes(policy=policy)})
    path = await resource_path(server, "workspace", workspace, account)
    return await with_policy(server, path, body, policy, account_id=account)


@workspaces_app.control(
    "delete",
    "tollhouse workspaces delete lab",
    "tollhouse workspaces delete default --confirm-default",
    confirm="Delete the workspace {workspace}?",
)
async def delete_workspace(
    server: Server,
    workspace: WorkspaceId,
    confirm_default: Annotated[
        bool, Option("--confirm-default", help="Needed to delete the default workspace.")
    ] = False,
    account: Account = None,
) -> Record:
    """Delete a workspace; its keys have to be deleted before."""
    query = {"confirm_default_workspace_deletion": confirm_default, "account_id": account}
    path = await resource_path(server, "workspace", workspace, account)
    return Record(await server.send("DELETE", path, query=query))


users_app = CommandGroup("users", "Users: the people of an account, who create its keys.")

users_app.add_typer(user_budgets_app)


@users_app.control(
    "create", "tollhouse users create Ada", "tollhouse users create Ada --email ada@acme.example"
)
async def create_user(
    server: Server,
    name: Annotated[str, Argument(metavar="NAME", help="The person's name.")],
    email: Annotated[str | None, Option(metavar="ADDRESS", help="Their e-mail address.")] = None,
    account: Account = None,
) -> Record:
    """Make a user of an account."""
    body = changes(name=name, email=email or None, account_id=account)
    return Record((await server.send("POST", "/users", body))["data"])


@users_app.control("list", "tollhouse users list")
async def list_users(server: Server, account: Account = None) -> Table:
    """List the users of an account, oldest first."""
    columns = ["id", "name", "email", column("created_at", "created")]
    return Table(await server.list_all("/users", account_id=account), columns)


@users_app.control("show", "tollhouse users show Ada")
async def show_user(server: Server, user: UserId, account: Account = None) -> Record:
    """Show a user."""
    path = await resource_path(server, "user", user, account)
    return Record((await server.get(path, account_id=account))["data"])


@users_app.control("set", "tollhouse users set Ada --email ada@acme.example")
async def set_user(
    server: Server,
    user: UserId,
    name: Annotated[str | None, Option(metavar="NAME", help="The person's new name.")] = None,
    email: Annotated[
        str | None, Option(metavar="ADDRESS", help='Their e-mail address; "" removes it.')
    ] = None,
    account: Account = None,
) -> Record:
    """Change the given fields of a user."""
    body = changes(name=name) | clearable(email=email)
    path = await resource_path(server, "user", user, account)
    changed = await server.send("PATCH", path, require_changes(body), query={"account_id": account})
    return Record(changed["data"])
