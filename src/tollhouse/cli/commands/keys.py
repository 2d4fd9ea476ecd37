"""`tollhouse keys` and `tollhouse key`: the keys that programs show to the gateway."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup, changes, require_changes
from tollhouse.cli.options import Account, NewName, OneAccount, PolicyFile, with_policy
from tollhouse.cli.output import Column, Item, Record, Table, column
from tollhouse.cli.references import chosen_account, key_hash, list_keys, resource_id
from tollhouse.cli.values import credits_text, expiry, parse_limit_option
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.errors import StartError

keys_app = CommandGroup(
    "keys", "API keys: what programs show to the gateway. A key's text is shown once."
)

SHOWN_DIGITS = 12
ISSUED = (
    *("key", "hash", "name", "kind", "operator", "account_id", "workspace_id", "expires_at"),
    *("limit", "limit_reset", "include_byok_in_limit"),
)

ResetPeriod = Literal["daily", "weekly", "monthly"]
KeyReference = Annotated[
    str,
    Argument(metavar="KEY", help="The key's hash or the beginning of it, its name, or its label."),
]
Workspace = Annotated[
    str | None, Option("--workspace", metavar="WORKSPACE", help="Id, slug or name of a workspace.")
]

Limit = Annotated[
    str | None,
    Option(
        "--limit",
        metavar="AMOUNT",
        help="Most credits that it may use, with at most nine decimals; 0 leaves it free models.",
    ),
]
LimitReset = Annotated[
    ResetPeriod | None,
    Option("--limit-reset", help="When the limit resets, at midnight UTC; weekly means Mondays."),
]
IncludeByok = Annotated[
    bool | None,
    Option(
        "--include-byok/--no-include-byok",
        help="Whether use with the customer's own provider keys counts towards the limit.",
    ),
]


def _require_name(context: typer.Context, named: str | None) -> str | None:
    """Refuse a command line without a name, before anything else is looked at."""
    if named is None and context.params.get("name") is None:
        raise typer.BadParameter("give the key a name: `tollhouse keys create NAME`")
    return named


@keys_app.control(
    "create",
    "tollhouse keys create ci",
    "tollhouse keys create trial --expires 30d --workspace lab",
    "tollhouse keys create team --limit 25 --limit-reset monthly",
    "tollhouse keys create admin --kind management --operator",
    "tollhouse keys create ci --json | jq -r .key",
)
async def create_key(
    server: Server,
    name: Annotated[str | None, Argument(metavar="[NAME]", help="Its name.")] = None,
    named: Annotated[
        str | None,
        Option("--name", metavar="NAME", help="The same, as an option.", callback=_require_name),
    ] = None,
    kind: Annotated[
        Literal["api", "management"],
        Option(help="api: inference. management: everything else of its account."),
    ] = "api",
    operator: Annotated[
        bool,
        Option(
            "--operator",
            help="A management key for the whole installation: every account, and credits.",
        ),
    ] = False,
    workspace: Workspace = None,
    user: Annotated[
        str | None, Option(metavar="USER", help="The user that it is made for, by id or name.")
    ] = None,
    expires: Annotated[
        str | None,
        Option(
            metavar="WHEN", help="When it stops working: 30d, 12h, 2w, or 2027-01-01T00:00:00Z."
        ),
    ] = None,
    limit: Limit = None,
    limit_reset: LimitReset = None,
    include_byok: IncludeByok = None,
    account: Account = None,
) -> Record:
    """Make a key and show its text, this once."""
    if name is not None and named is not None:
        raise StartError("give the key one name: `tollhouse keys create NAME`")
    body = changes(
        name=name or named,
        kind=kind,
        operator=operator or None,
        workspace_id=await _workspace(server, workspace, account),
        creator_user_id=None if user is None else await resource_id(server, "user", user, account),
        expires_at=None if expires is None else expiry(expires, SystemClock().now()),
        **_limits(limit, limit_reset, include_byok),
        account_id=account,
    )
    made = await server.send("POST", "/keys", body)
    return Record(
        {"key": made["key"], **made["data"]},
        fields=ISSUED,
        note="Keep the key now: only its hash is stored, and nobody can show it again.",
    )


@keys_app.control("list", "tollhouse keys list", "tollhouse keys list --workspace lab --all")
async def list_keys_command(
    server: Server,
    workspace: Workspace = None,
    every: Annotated[bool, Option("--all", help="Include disabled and expired keys.")] = False,
    account: Account = None,
) -> Table:
    """List the keys of an account, workspace by workspace, newest first."""
    found = await list_keys(server, account, workspace, every=every)
    return Table(found, _columns(SystemClock().now()))


@keys_app.control("show", "tollhouse keys show 3fa94c1be0d7")
async def show_key(server: Server, key: KeyReference, account: OneAccount = None) -> Record:
    """Show a key, without its text."""
    return await with_policy(server, await _path(server, key, account))


@keys_app.control(
    "set",
    "tollhouse keys set 3fa94c1be0d7 --disabled",
    "tollhouse keys set 3fa94c1be0d7 --name ci-2 --workspace lab",
    "tollhouse keys set 3fa94c1be0d7 --limit 12.5 --limit-reset weekly",
    "tollhouse keys set 3fa94c1be0d7 --no-limit --no-limit-reset",
    "tollhouse keys set 3fa94c1be0d7 --policy policy.yaml",
)
async def set_key(
    server: Server,
    key: KeyReference,
    name: NewName = None,
    disabled: Annotated[
        bool | None, Option("--disabled/--enabled", help="Disable the key, or enable it again.")
    ] = None,
    workspace: Workspace = None,
    limit: Limit = None,
    no_limit: Annotated[bool, Option("--no-limit", help="Remove the limit.")] = False,
    limit_reset: LimitReset = None,
    no_limit_reset: Annotated[
        bool, Option("--no-limit-reset", help="Never reset the limit.")
    ] = False,
    include_byok: IncludeByok = None,
    policy: PolicyFile = None,
    account: OneAccount = None,
) -> Record:
    """Change a key's name, workspace, limit or policy, or disable it; what is not given stays.

    All of it is in force at once. The key's text stays what it is and cannot be shown.
    """
    chosen = await chosen_account(server, account)
    moved = await _workspace(server, workspace, chosen)
    body = changes(name=name, disabled=disabled, workspace_id=moved)
    body |= _limits(limit, limit_reset, include_byok)
    body |= _cleared("limit", body, clear=no_limit)
    body |= _cleared("limit_reset", body, clear=no_limit_reset)
    require_changes({**body, **changes(policy=policy)})
    return await with_policy(server, await _path(server, key, account), body, policy)


@keys_app.control(
    "delete", "tollhouse keys delete 3fa94c1be0d7", confirm="Revoke the key {key} for ever?"
)
async def delete_key(server: Server, key: KeyReference, account: OneAccount = None) -> Record:
    """Revoke a key permanently, at once."""
    return Record(await server.send("DELETE", await _path(server, key, account)))


def _limits(
    limit: str | None, limit_reset: ResetPeriod | None, include_byok: bool | None
) -> dict[str, object]:
    return changes(
        limit=None if limit is None else parse_limit_option(limit),
        limit_reset=limit_reset,
        include_byok_in_limit=include_byok,
    )


def _cleared(name: str, body: Mapping[str, object], *, clear: bool) -> dict[str, object]:
    if clear and name in body:
        option = name.replace("_", "-")
        raise StartError(f"--{option} and --no-{option}: give one of them")
    return {name: None} if clear else {}


async def _workspace(server: Server, named: str | None, account: str | None) -> str | None:
    return None if named is None else await resource_id(server, "workspace", named, account)


async def _path(server: Server, given: str, account: str | None) -> str:
    return f"/keys/{await key_hash(server, given, account)}"


def _columns(now: datetime) -> list[Column | str]:
    return [
        Column("hash", lambda key: key["hash"], short=lambda text: text[:SHOWN_DIGITS]),
        *("name", Column("kind", kind_of), "workspace"),
        Column("state", lambda key: state_of(key, now)),
        "label",
        Column("usage", lambda key: credits_text(key["usage"])),
        *("limit", column("limit_reset", "resets"), column("limit_remaining", "left")),
        *(column("last_used_at", "last used"), column("expires_at", "expires")),
    ]


def kind_of(key: Item) -> str:
    """Return the kind of a key, with a word for one that runs the installation."""
    return "operator" if key["operator"] else key["kind"]


def state_of(key: Item, now: datetime) -> str:
    """Return whether a key is taken: active, disabled or expired."""
    if key["disabled"]:
        return "disabled"
    expires = key["expires_at"]
    if expires is not None and datetime.fromisoformat(expires) <= now:
        return "expired"
    return "active"


key_app = CommandGroup("key", "The key in TOLLHOUSE_API_KEY.", by_key=True)


@key_app.control(
    "show",
    "TOLLHOUSE_API_KEY=sk-th-v1-... tollhouse key show",
    "TOLLHOUSE_API_KEY=sk-th-v1-... tollhouse key show --base-url URL",
)
async def show_own_key(server: Server) -> Record:
    """Show what the server knows about the key: its use, its limits, its scope."""
    return Record((await server.get("/key"))["data"])
