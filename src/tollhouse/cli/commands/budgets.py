"""`tollhouse workspaces budgets` and `users budgets`: what may be used together in an interval."""

from typing import Annotated, Any, Literal

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup, changes
from tollhouse.cli.options import Account
from tollhouse.cli.output import Column, Item, Record, Table, column
from tollhouse.cli.references import resource_path
from tollhouse.cli.values import credits_text, parse_amount, path_segment

workspace_budgets_app = CommandGroup(
    "budgets",
    "What all requests of a workspace, or those that name one end user, may use in an interval.",
)
user_budgets_app = CommandGroup(
    "budgets", "What the keys that a user made may use together in an interval."
)

WorkspaceId = Annotated[
    str, Argument(metavar="WORKSPACE", help="Id, slug or name of the workspace.")
]
UserId = Annotated[str, Argument(metavar="USER", help="Id or name of the user.")]
Interval = Annotated[
    Literal["daily", "weekly", "monthly", "lifetime"],
    Argument(metavar="INTERVAL", help="daily, weekly (from Mondays), monthly or lifetime, in UTC."),
]
Limit = Annotated[
    str,
    Argument(
        metavar="CREDITS",
        help="Most credits: more than in shorter intervals, less than in longer ones.",
    ),
]
IncludeByok = Annotated[
    bool | None,
    Option(
        "--include-byok/--no-include-byok",
        help="Whether use with own provider keys counts, in each interval; as before unless given.",
    ),
]
EndUser = Annotated[
    str | None,
    Option(
        "--end-user",
        metavar="NAME",
        help="Of the requests alone that name this end user as their `user`.",
    ),
]


@workspace_budgets_app.control(
    "list",
    "tollhouse workspaces budgets list default",
    "tollhouse workspaces budgets list lab --end-user ada@example.com --json",
    "tollhouse workspaces budgets list lab --end-users",
)
async def list_workspace_budgets(
    server: Server,
    workspace: WorkspaceId,
    end_user: EndUser = None,
    end_users: Annotated[bool, Option("--end-users", help="Those of all its end users.")] = False,
    account: Account = None,
) -> Table:
    """List the budgets of a workspace, the shortest interval first."""
    path = await resource_path(server, "workspace", workspace, account)
    if end_users:
        found = await server.list_all(f"{path}/end-users/budgets", account_id=account)
        return Table(found, [column("end_user", "end user"), *_COLUMNS])
    return await _list(server, _budgets(path, end_user), account)


@workspace_budgets_app.control(
    "set",
    "tollhouse workspaces budgets set default monthly 100",
    "tollhouse workspaces budgets set lab daily 5 --include-byok",
    "tollhouse workspaces budgets set lab daily 0.5 --end-user ada@example.com",
)
async def set_workspace_budget(
    server: Server,
    workspace: WorkspaceId,
    interval: Interval,
    limit: Limit,
    include_byok: IncludeByok = None,
    end_user: EndUser = None,
    account: Account = None,
) -> Record:
    """Set what all requests of a workspace may use in an interval; in force at once."""
    path = _budgets(await resource_path(server, "workspace", workspace, account), end_user)
    return await _set(server, f"{path}/{interval}", limit, include_byok, account)


@workspace_budgets_app.control(
    "remove",
    "tollhouse workspaces budgets remove lab daily",
    "tollhouse workspaces budgets remove lab daily --end-user ada@example.com",
)
async def remove_workspace_budget(
    server: Server,
    workspace: WorkspaceId,
    interval: Interval,
    end_user: EndUser = None,
    account: Account = None,
) -> Record:
    """Remove the budget of a workspace's interval; there need not be one."""
    path = _budgets(await resource_path(server, "workspace", workspace, account), end_user)
    return Record(await server.send("DELETE", f"{path}/{interval}", query=_query(account)))


@user_budgets_app.control("list", "tollhouse users budgets list Ada")
async def list_user_budgets(server: Server, user: UserId, account: Account = None) -> Table:
    """List the budgets of a user, the shortest interval first."""
    path = await resource_path(server, "user", user, account)
    return await _list(server, _budgets(path), account)


@user_budgets_app.control("set", "tollhouse users budgets set Ada weekly 20")
async def set_user_budget(
    server: Server,
    user: UserId,
    interval: Interval,
    limit: Limit,
    include_byok: IncludeByok = None,
    account: Account = None,
) -> Record:
    """Set what the keys that a user made may use together in an interval; in force at once."""
    path = _budgets(await resource_path(server, "user", user, account))
    return await _set(server, f"{path}/{interval}", limit, include_byok, account)


@user_budgets_app.control("remove", "tollhouse users budgets remove Ada weekly")
async def remove_user_budget(
    server: Server, user: UserId, interval: Interval, account: Account = None
) -> Record:
    """Remove the budget of a user's interval; there need not be one."""
    path = _budgets(await resource_path(server, "user", user, account))
    return Record(await server.send("DELETE", f"{path}/{interval}", query=_query(account)))


def _amount(name: str) -> Column:
    return Column(name.removesuffix("_usd"), lambda budget: credits_text(budget[name]))


_COLUMNS = [
    Column("interval", lambda budget: budget["reset_interval"] or "lifetime"),
    *map(_amount, ("limit_usd", "spend_usd", "remaining_usd")),
    column("resets_at", "resets"),
    Column("own keys", lambda budget: "count" if budget["include_byok"] else None),
]


def _budgets(path: str, end_user: str | None = None) -> str:
    if end_user is None:
        return f"{path}/budgets"
    return f"{path}/end-users/{path_segment(end_user)}/budgets"


def _query(account: str | None) -> dict[str, Any]:
    return changes(account_id=account)


async def _list(server: Server, path: str, account: str | None) -> Table:
    found: list[Item] = (await server.get(path, account_id=account))["data"]
    return Table(found, _COLUMNS)


async def _set(
    server: Server, path: str, limit: str, include_byok: bool | None, account: str | None
) -> Record:
    body = changes(limit_usd=parse_amount(limit), include_byok_in_budgets=include_byok)
    return Record((await server.send("PUT", path, body, query=_query(account)))["data"])
