"""`tollhouse keys`: the keys that programs show to the gateway."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun, some
from tollhouse.cli.options import Account, OneAccount, yes_to
from tollhouse.cli.output import Column, Item, Listing, Record, field
from tollhouse.cli.policies import PolicyFile, with_policy
from tollhouse.cli.references import all_keys, chosen_account, key_hash, user_id, workspace_id
from tollhouse.cli.values import credits_text, expiry, limit_text
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.start import StartError

app = noun("keys", "API keys: what programs show to the gateway. A key's text is shown once.")

SHOWN_DIGITS = 12
ISSUED = (
    *("key", "hash", "name", "kind", "operator", "account_id", "workspace_id", "expires_at"),
    *("limit", "limit_reset", "include_byok_in_limit"),
)


class Kind(StrEnum):
    """What a key is for."""

    API = "api"
    MANAGEMENT = "management"


class Reset(StrEnum):
    """When a limit starts anew."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


Hash = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The key's hash or the beginning of it, its name, or its label."
    ),
]
Workspace = Annotated[
    str | None,
    typer.Option("--workspace", metavar="WORKSPACE", help="Id, slug or name of a workspace."),
]

Limit = Annotated[
    str | None,
    typer.Option(
        "--limit",
        metavar="AMOUNT",
        help="Most credits that it may use, with at most nine decimals; 0 leaves it free models.",
    ),
]
LimitReset = Annotated[
    Reset | None,
    typer.Option(
        "--limit-reset",
        help="When the limit resets, at midnight UTC; weekly means Mondays.",
    ),
]
IncludeByok = Annotated[
    bool | None,
    typer.Option(
        "--include-byok/--no-include-byok",
        help="Whether use with the customer's own provider keys counts towards the limit.",
    ),
]


def _require_name(context: typer.Context, named: str | None) -> str | None:
    """Refuse a command line without a name, before anything else is looked at."""
    if named is None and context.params.get("name") is None:
        message = "give the key a name: `tollhouse keys create NAME`"
        raise typer.BadParameter(message)
    return named


@control_command(
    app,
    "create",
    "tollhouse keys create ci",
    "tollhouse keys create trial --expires 30d --workspace lab",
    "tollhouse keys create team --limit 25 --limit-reset monthly",
    "tollhouse keys create admin --kind management --operator",
    "tollhouse keys create ci --json | jq -r .key",
)
async def create(
    server: Server,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Its name.")] = None,
    named: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="The same, as an option.", callback=_require_name
        ),
    ] = None,
    kind: Annotated[
        Kind,
        typer.Option(help="api: inference. management: everything else of its account."),
    ] = Kind.API,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="A management key for the whole installation: every account, and credits.",
        ),
    ] = False,
    workspace: Workspace = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="USER", help="The user that it is made for, by id or name."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
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
        message = "give the key one name: `tollhouse keys create NAME`"
        raise StartError(message)
    body = changes(
        name=name or named,
        kind=kind.value,
        operator=operator or None,
        workspace_id=await _workspace(server, workspace, account),
        creator_user_id=None if user is None else await user_id(server, user, account),
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


@control_command(app, "list", "tollhouse keys list", "tollhouse keys list --workspace lab --all")
async def list_(
    server: Server,
    workspace: Workspace = None,
    every: Annotated[
        bool, typer.Option("--all", help="Include disabled and expired keys.")
    ] = False,
    account: Account = None,
) -> Listing:
    """List the keys of an account, workspace by workspace, newest first."""
    found = await all_keys(server, account, workspace, every=every)
    return Listing(found, _columns(SystemClock().now()))


@control_command(app, "show", "tollhouse keys show 3fa94c1be0d7")
async def show(server: Server, key: Hash, account: OneAccount = None) -> Record:
    """Show a key, without its text."""
    path = await _path(server, key, account)
    return Record(await with_policy(server, path, (await server.get(path))["data"], None))


@control_command(
    app,
    "set",
    "tollhouse keys set 3fa94c1be0d7 --disabled",
    "tollhouse keys set 3fa94c1be0d7 --name ci-2 --workspace lab",
    "tollhouse keys set 3fa94c1be0d7 --limit 12.5 --limit-reset weekly",
    "tollhouse keys set 3fa94c1be0d7 --no-limit --no-limit-reset",
    "tollhouse keys set 3fa94c1be0d7 --policy policy.yaml",
)
async def set_(
    server: Server,
    key: Hash,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its new name.")] = None,
    disabled: Annotated[
        bool | None,
        typer.Option("--disabled/--enabled", help="Disable the key, or enable it again."),
    ] = None,
    workspace: Workspace = None,
    limit: Limit = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Remove the limit.")] = False,
    limit_reset: LimitReset = None,
    no_limit_reset: Annotated[
        bool, typer.Option("--no-limit-reset", help="Never reset the limit.")
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
    some({**body, **changes(policy=policy)})
    path = await _path(server, key, account)
    found = await (server.send("PATCH", path, body) if body else server.get(path))
    return Record(await with_policy(server, path, found["data"], policy))


@control_command(app, "delete", "tollhouse keys delete 3fa94c1be0d7")
async def delete(
    server: Server,
    key: Hash,
    account: OneAccount = None,
    yes: Annotated[bool, yes_to("Revoke the key {key} for ever?")] = False,
) -> Record:
    """Revoke a key permanently, at once."""
    del yes  # it is asked before the server is
    return Record(await server.send("DELETE", await _path(server, key, account)))


def _limits(
    limit: str | None, limit_reset: Reset | None, include_byok: bool | None
) -> dict[str, object]:
    return changes(
        limit=None if limit is None else limit_text(limit),
        limit_reset=limit_reset,
        include_byok_in_limit=include_byok,
    )


def _cleared(name: str, body: Mapping[str, object], *, clear: bool) -> dict[str, object]:
    if clear and name in body:
        option = name.replace("_", "-")
        message = f"--{option} and --no-{option}: give one of them"
        raise StartError(message)
    return {name: None} if clear else {}


async def _workspace(server: Server, named: str | None, account: str | None) -> str | None:
    return None if named is None else await workspace_id(server, named, account)


async def _path(server: Server, given: str, account: str | None) -> str:
    return f"/keys/{await key_hash(server, given, account)}"


def _columns(now: datetime) -> list[Column]:
    return [
        Column("hash", lambda key: key["hash"], short=lambda text: text[:SHOWN_DIGITS]),
        field("name"),
        Column("kind", kind_of),
        field("workspace"),
        Column("state", lambda key: state_of(key, now)),
        field("label"),
        Column("usage", lambda key: credits_text(key["usage"])),
        field("limit"),
        field("limit_reset", "resets"),
        field("limit_remaining", "left"),
        field("last_used_at", "last used"),
        field("expires_at", "expires"),
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
