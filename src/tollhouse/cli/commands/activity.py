"""`tollhouse activity`: what was asked of which model on which day."""

from enum import StrEnum
from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import control_command
from tollhouse.cli.options import Account
from tollhouse.cli.output import Listing, field
from tollhouse.cli.references import key_hash, workspace_id

app = typer.Typer(rich_markup_mode=None)
"""Without a name: its one command stands beside the nouns."""

MOST_ROWS = 10_000


class By(StrEnum):
    """What rows are split by."""

    KEY = "key"
    WORKSPACE = "workspace"


@control_command(
    app,
    "activity",
    "tollhouse activity",
    "tollhouse activity --from 2026-01-01 --to 2026-02-01 --by key",
    "tollhouse activity --date 2026-01-31 --json",
)
async def activity(
    server: Server,
    day: Annotated[
        str | None, typer.Option("--date", metavar="DAY", help="Only this UTC day: 2026-01-31.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", help="The first UTC day; 30 days back unless given."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DAY", help="The day after the last one; tomorrow unless given."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Only this key: its hash, name or label."),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace", metavar="WORKSPACE", help="Only this workspace: its id, slug or name."
        ),
    ] = None,
    by: Annotated[
        By | None, typer.Option("--by", help="A row for each key, or for each workspace.")
    ] = None,
    account: Account = None,
) -> Listing:
    """Show the use of an account by day, model and provider, the latest day first."""
    query: dict[str, object] = {
        "date": day,
        "from": since,
        "to": until,
        "api_key_hash": None if key is None else await key_hash(server, key, account),
        "workspace_id": None
        if workspace is None
        else await workspace_id(server, workspace, account),
        "group_by": None if by is None else by.value,
        "account_id": account,
        "limit": MOST_ROWS,
    }
    columns = [
        field("date"),
        field("model"),
        field("provider_name", "provider"),
        field("requests"),
        field("prompt_tokens", "input"),
        field("completion_tokens", "output"),
        field("usage"),
        field("byok_usage_inference", "own keys"),
    ]
    if by is By.KEY:
        columns.append(field("api_key_hash", "key"))
    if by is By.WORKSPACE:
        columns.append(field("workspace_id", "workspace"))
    return Listing(await server.all_of("/activity", **query), columns)
