"""`tollhouse workspaces budgets` and `users budgets`: what may be used together in an interval."""

from typing import Annotated, Literal

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup, changes
from tollhouse.cli.options import Account, UserId, WorkspaceId
from tollhouse.cli.output import Column, Record, Table, column
from tollhouse.cli.references import Noun, resource_path
from tollhouse.cli.values import credits_text, parse_amount, path_segment

workspace_budgets_app = CommandGroup(
    "budgets",
    "What all requests of a workspace, or those that name one end user, may use in an interval.",
)
user_budgets_app = CommandGroup(
    "budgets", "What the keys that a user made may use together in an interval."
)

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
    if end_users:
        path = await resource_path(server, "workspace", workspace, account)
        found = await server.list_all(f"{path}/end-users/budgets", account_id=account)
        return Table(found, [column("end_user", "end user"), *_COLUMNS])
    return await _list(server, "workspace", workspace, account, end_user)


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
    path = await _path(server, "workspace", workspace, account, end_user)
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
    path = await _path(server, "workspace", workspace, account, end_user)
    return Record(await server.send("DELETE", f"{path}/{interval}", query={"account_id": account}))


@user_budgets_app.control("list", "tollhouse users budgets list Ada")
async def list_user_budgets(server: Server, user: UserId, account: Account = None) -> Table:
    """List the budgets of a user, the shortest interval first."""
    return await _list(server, "user", user, account)


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
    path = await _path(server, "user", user, account)
    return await _set(server, f"{path}/{interval}", limit, include_byok, account)


@user_budgets_app.control("remove", "tollhouse users budgets remove Ada weekly")
async def remove_user_budget(
    server: Server, user: UserId, interval: Interval, account: Account = None
) -> Record:
    """Remove the budget of a user's interval; there need not be one."""
    path = await _path(server, "user", user, account)
    return Record(await server.send("DELETE", f"{path}/{interval}", query={"account_id": account}))


_COLUMNS = [
    Column("interval", lambda budget: budget["reset_interval"] or "lifetime"),
    Column("limit", lambda budget: credits_text(budget["limit_usd"])),
    Column("spend", lambda budget: credits_text(budget["spend_usd"])),
    Column("remaining", lambda budget: credits_text(budget["remaining_usd"])),
    column("resets_at", "resets"),
    Column("own keys", lambda budget: "count" if budget["include_byok"] else None),
]


async def _path(
    server: Server, noun: Noun, reference: str, account: str | None, end_user: str | None = None
) -> str:
    owner = await resource_path(server, noun, reference, account)
    if end_user is not None:
        owner += f"/end-users/{path_segment(end_user)}"
    return f"{owner}/budgets"


async def _list(
    server: Server, noun: Noun, reference: str, account: str | None, end_user: str | None = None
) -> Table:
    path = await _path(server, noun, reference, account, end_user)
    return Table((await server.get(path, account_id=account))["data"], _COLUMNS)


async def _set(
    server: Server, path: str, limit: str, include_byok: bool | None, account: str | None
) -> Record:
    body = changes(limit_usd=parse_amount(limit), include_byok_in_budgets=include_byok)
    return Record((await server.send("PUT", path, body, query={"account_id": account}))["data"])
