"""`tollhouse models`, `activity`, `generation`, `estimate`: what is asked, and what it costs."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup
from tollhouse.cli.options import Account
from tollhouse.cli.output import Column, Item, Record, Report, Table, column
from tollhouse.cli.references import key_hash, resource_id
from tollhouse.cli.values import price_per_million
from tollhouse.kernel.errors import StartError

models_app = CommandGroup("models", "Models: what the gateway can be asked for.")


@models_app.control("list", "tollhouse models list", "tollhouse models list --json")
async def list_models(server: Server) -> Table:
    """List the models with their prices in USD for a million tokens; needs no key."""
    columns = [
        "id",
        column("context_length", "context"),
        Column("input $/m", lambda model: price_per_million(model["pricing"]["prompt"])),
        Column("output $/m", lambda model: price_per_million(model["pricing"]["completion"])),
        "name",
    ]
    return Table((await server.get("/models"))["data"], columns)


activity_app = CommandGroup()

MOST_ROWS = 10_000


@activity_app.control(
    "activity",
    "tollhouse activity",
    "tollhouse activity --from 2026-01-01 --to 2026-02-01 --by key",
    "tollhouse activity --date 2026-01-31 --json",
)
async def activity(
    server: Server,
    day: Annotated[
        str | None, Option("--date", metavar="DAY", help="Only this UTC day: 2026-01-31.")
    ] = None,
    since: Annotated[
        str | None,
        Option("--from", metavar="DAY", help="The first UTC day; 30 days back unless given."),
    ] = None,
    until: Annotated[
        str | None,
        Option("--to", metavar="DAY", help="The day after the last one; tomorrow unless given."),
    ] = None,
    key: Annotated[
        str | None, Option(metavar="KEY", help="Only this key: its hash, name or label.")
    ] = None,
    workspace: Annotated[
        str | None, Option(metavar="WORKSPACE", help="Only this workspace: its id, slug or name.")
    ] = None,
    by: Annotated[
        Literal["key", "workspace"] | None,
        Option(help="A row for each key, or for each workspace."),
    ] = None,
    account: Account = None,
) -> Table:
    """Show the use of an account by day, model and provider, the latest day first."""
    query: dict[str, object] = {"date": day, "from": since, "to": until, "group_by": by}
    if key is not None:
        query["api_key_hash"] = await key_hash(server, key, account)
    if workspace is not None:
        query["workspace_id"] = await resource_id(server, "workspace", workspace, account)
    columns = [
        *("date", "model", column("provider_name", "provider"), "requests"),
        *(column("prompt_tokens", "input"), column("completion_tokens", "output")),
        *("usage", column("byok_usage_inference", "own keys")),
    ]
    if by is not None:
        columns.append(column("api_key_hash" if by == "key" else "workspace_id", by))
    found = await server.list_all("/activity", account_id=account, limit=MOST_ROWS, **query)
    return Table(found, columns)


generation_app = CommandGroup(
    "generation", "Generations: single replies and what they cost.", by_key=True
)


@generation_app.control(
    "show", "TOLLHOUSE_API_KEY=sk-th-v1-... tollhouse generation show gen-... --base-url URL"
)
async def show_generation(
    server: Server,
    generation: Annotated[
        str, Argument(metavar="ID", help="The reply's id, or its X-Generation-Id.")
    ],
) -> Record:
    """Show a reply and its charge; needs a key that may see it."""
    return Record((await server.get("/generation", id=generation))["data"])


def estimate_report(found: dict[str, Any]) -> Report:
    """Return what is shown of an estimate."""
    tried = [{"place": place, **each} for place, each in enumerate(found["endpoints"], 1)]
    return Report(
        found,
        (
            ("request", Record(_summary(found))),
            ("endpoints", Table(tried, _ENDPOINTS)),
            ("left out", Table(found["left_out"], _LEFT_OUT)),
            ("limits", Table(found["limits"], _LIMITS)),
        ),
    )


def _summary(found: dict[str, Any]) -> Item:
    tokens, hold, refusal = found["tokens"], found["hold"], found["refusal"]
    costs = [each["cost_estimate"] for each in found["endpoints"]]
    return {
        "model": found["model"],
        "input tokens": tokens["input"],
        "output tokens": "no limit" if tokens["output"] is None else tokens["output"],
        "images": tokens["images"],
        "cost at most": max(costs, default=None),
        "hold": None if hold is None else hold["credits"],
        "would be": "sent" if refusal is None else f"refused with {refusal['status']}",
        "because": None if refusal is None else refusal["message"],
        "guardrails, not asked": ", ".join(found["guardrails"]),
    }


_OFFER = ("model", "provider", column("provider_model", "called"))
_ENDPOINTS = (
    *(column("place", "#"), *_OFFER, "dialect", column("cost_estimate", "cost at most")),
    Column("input $/m", lambda each: price_per_million(each["pricing"]["prompt"])),
    Column("output $/m", lambda each: price_per_million(each["pricing"]["completion"])),
    column("is_byok", "own key"),
    column("cooling_down", "cooling down"),
)
_LEFT_OUT = (*_OFFER, "reason", Column("details", lambda each: " ".join(each["details"])))
_LIMITS = (
    *("name", "unit", "limit", "used", "held", "remaining"),
    *(column("resets_at", "resets at"), "fits"),
)


async def estimate(
    server: Server,
    file: Annotated[
        str, Argument(metavar="FILE", help="The request's body as JSON; - reads standard input.")
    ],
    endpoint: Annotated[
        str,
        Option(
            metavar="ENDPOINT",
            help="The format of the body: chat/completions, responses, messages, completions or "
            "embeddings.",
        ),
    ] = "chat/completions",
) -> Report:
    """Show what a request would cost, who would be asked, and which limit would refuse it.

    Nothing is sent to a provider, held or charged. Needs an API key.
    """
    asked = {"endpoint": endpoint, "body": _body(file)}
    return estimate_report((await server.send("POST", "/estimate", asked))["data"])


def _body(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found: object = json.loads(text)
    except OSError as error:
        raise StartError(f"{file} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise StartError(f"{file} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise StartError(f"{file} must hold a JSON object, the body of a request")
    return cast("dict[str, Any]", found)
