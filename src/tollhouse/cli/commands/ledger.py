"""`tollhouse ledger`: whether the books are right, and what they say."""

from typing import Annotated, Any

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import control_command, noun
from tollhouse.cli.options import Account, OneAccount
from tollhouse.cli.output import Column, Item, Listing, Record, Report, field
from tollhouse.cli.references import account_id

app = noun("ledger", "The ledger: whether the books are right, statements, unknown costs.")

DIFFERS = 1
VERIFY_SECONDS = 3_600.0
"""All rows are looked at; a million generations take half a minute."""

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHEN",
        help="The first day, or instant, that is included, in UTC: 2026-01-31 or "
        "2026-01-31T12:00:00Z.",
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="WHEN", help="The first day, or instant, that is not included."),
]


@control_command(app, "verify", "tollhouse ledger verify", "tollhouse ledger verify --json")
async def verify(server: Server) -> Report:
    """Recompute every balance and counter; needs an operator.

    Ends with exit code 1 and names what differs, with what is stored and what it has to be.
    """
    found = (await server.send("GET", "/ledger/verify", seconds=VERIFY_SECONDS))["data"]
    if found["clean"]:
        clean = {name: found[name] for name in ("postings", "generations")}
        return Report(found, Record({"differences": 0, **clean}))
    columns = [field("what"), field("whose"), field("stored"), field("recomputed")]
    return Report(found, Listing(found["differences"], columns), exit_code=DIFFERS)


@control_command(
    app,
    "statement",
    "tollhouse ledger statement",
    "tollhouse ledger statement --from 2026-01-01 --to 2026-02-01",
    "tollhouse ledger statement --detail --account acme --json",
)
async def statement(
    server: Server,
    since: From = None,
    until: To = None,
    detail: Annotated[
        bool,
        typer.Option(
            "--detail",
            help="Each charge with its generation, instead of a line for each day and model.",
        ),
    ] = False,
    offset: Annotated[int, typer.Option(min=0, help="How many lines to skip.")] = 0,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="How many lines to show at most.")
    ] = 1000,
    account: Account = None,
) -> Report:
    """Show what happened to an account's money, from the opening to the closing balance."""
    query: dict[str, object] = {
        "from": since,
        "to": until,
        "detail": detail,
        "offset": offset,
        "limit": limit,
        "account_id": account,
    }
    found = (await server.get("/ledger/statement", **query))["data"]
    return Report(found, Listing(_rows(found), _columns()))


def _rows(found: dict[str, Any]) -> list[Item]:
    rows: list[Item] = [{"kind": "opening", "balance": found["opening_balance"]}]
    rows += found["lines"]
    rows.append({"kind": "closing", "amount": found["change"], "balance": found["closing_balance"]})
    return rows


def _columns() -> list[Column]:
    return [
        Column("when", lambda line: line.get("created_at") or line.get("date")),
        field("kind"),
        field("amount"),
        field("balance"),
        Column("about", _about),
        field("note"),
    ]


def _about(line: Item) -> str | None:
    if line.get("generation_id"):
        return line["generation_id"]
    if line["kind"] == "usage":
        return f"{line['model'] or 'unknown'} x {line['count']}"
    return line.get("posting_id")


@control_command(
    app, "unknown", "tollhouse ledger unknown", "tollhouse ledger unknown --account acme --json"
)
async def unknown(server: Server, account: OneAccount = None) -> Listing:
    """List generations of unknown cost, newest first; of all accounts for an operator.

    `tollhouse credits adjust AMOUNT --generation ID --note TEXT` settles one.
    """
    named = None if account is None else await account_id(server, account)
    found = (await server.get("/ledger/unknown", account_id=named))["data"]
    columns = [
        field("id"),
        field("created_at", "created"),
        field("account_id", "account"),
        field("model"),
        field("provider_name", "provider"),
        field("upstream_id", "provider's id"),
    ]
    return Listing(found, columns)
