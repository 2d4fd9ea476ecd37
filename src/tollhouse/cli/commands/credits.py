"""`tollhouse credits` and `ledger`: an account's money, and whether the books are right."""

from typing import Annotated, Final
from urllib.parse import quote

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup, changes
from tollhouse.cli.options import Account, OneAccount
from tollhouse.cli.output import Column, Item, Record, Report, Table, column
from tollhouse.cli.references import resource_id
from tollhouse.cli.values import credits_text, header_text, parse_amount, parse_signed_amount

credits_app = CommandGroup(
    "credits", "Credits: what an account has and what it used. 1 credit is 1 USD."
)

Amount = Annotated[str, Argument(metavar="AMOUNT", help="How many, with at most nine decimals.")]
Note = Annotated[str | None, Option(metavar="TEXT", help="A remark for the statement.")]
IdempotencyKey = Annotated[
    str | None,
    Option(metavar="KEY", help="Repeating the command with the same key changes nothing."),
]


@credits_app.control(
    "add",
    "tollhouse credits add 25",
    "tollhouse credits add 100 --account acme --idempotency-key invoice-17",
)
async def add(
    server: Server,
    given: Amount,
    grant: Annotated[
        bool, Option("--grant", help="Grant the credits, as `tollhouse credits grant` does.")
    ] = False,
    note: Note = None,
    idempotency_key: IdempotencyKey = None,
    account: Account = None,
) -> Record:
    """Add purchased credits to an account; needs an operator."""
    kind = "grant" if grant else "purchase"
    return await _book(server, parse_amount(given), kind, note, idempotency_key, account)


@credits_app.control(
    "grant",
    'tollhouse credits grant 5 --note "for the trial"',
    "tollhouse credits grant 5 --account acme --idempotency-key trial-3",
)
async def grant(
    server: Server,
    given: Amount,
    note: Note = None,
    idempotency_key: IdempotencyKey = None,
    account: Account = None,
) -> Record:
    """Add free credits to an account; needs an operator."""
    return await _book(server, parse_amount(given), "grant", note, idempotency_key, account)


@credits_app.control(
    "refund",
    "tollhouse credits refund 25 --idempotency-key refund-17",
    'tollhouse credits refund 10 --account acme --note "invoice 17"',
)
async def refund(
    server: Server,
    given: Amount,
    note: Note = None,
    idempotency_key: IdempotencyKey = None,
    account: Account = None,
) -> Record:
    """Take credits back whose purchase was paid back; needs an operator.

    No more than was purchased and not refunded yet. The balance may fall below zero.
    """
    return await _book(server, parse_amount(given), "refund", note, idempotency_key, account)


@credits_app.control(
    "adjust",
    'tollhouse credits adjust -0.02 --generation gen-... --note "the provider billed it"',
    'tollhouse credits adjust 1.5 --note "an outage" --account acme --idempotency-key outage-4',
    dashes=True,
)
async def adjust(
    server: Server,
    given: Annotated[
        str,
        Argument(metavar="AMOUNT", help="Credits to add; a negative amount removes them: -0.02."),
    ],
    note: Annotated[str, Option(metavar="TEXT", help="The reason; it appears in the statement.")],
    generation: Annotated[
        str | None,
        Option(
            metavar="ID",
            help="The generation that is corrected; one of unknown cost is then settled.",
        ),
    ] = None,
    idempotency_key: IdempotencyKey = None,
    account: Account = None,
) -> Record:
    """Correct an account's balance, up or down; needs an operator."""
    amount = parse_signed_amount(given)
    return await _book(
        server, amount, "adjustment", note, idempotency_key, account, generation_id=generation
    )


@credits_app.control("show", "tollhouse credits show", "tollhouse credits show --account acme")
async def show_credits(server: Server, account: Account = None) -> Record:
    """Show what an account was given, what it used and what is left."""
    found = (await server.get("/credits", account_id=account))["data"]
    left = credits_text(found["total_credits"] - found["total_usage"])
    return Record({**found, "balance": float(left)})


async def _book(
    server: Server,
    amount: str,
    kind: str,
    note: str | None,
    idempotency_key: str | None,
    account: str | None,
    **more: str | None,
) -> Record:
    body = changes(amount=amount, kind=kind, note=note, account_id=account, **more)
    headers: dict[str, str] = {}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = header_text(idempotency_key, "--idempotency-key")
    return Record((await server.send("POST", "/credits", body, headers=headers))["data"])


ledger_app = CommandGroup(
    "ledger", "The ledger: whether the books are right, statements, what nobody was charged for."
)

DIFFERS = 1
VERIFY_SECONDS = 3_600.0
"""All rows are looked at; a million generations take half a minute."""

From = Annotated[
    str | None,
    Option(
        "--from",
        metavar="WHEN",
        help="The first day, or instant, that is included, in UTC: 2026-01-31 or "
        "2026-01-31T12:00:00Z.",
    ),
]
To = Annotated[
    str | None,
    Option("--to", metavar="WHEN", help="The first day, or instant, that is not included."),
]


@ledger_app.control("verify", "tollhouse ledger verify", "tollhouse ledger verify --json")
async def verify(server: Server) -> Report:
    """Recompute every balance and counter; needs an operator.

    Ends with exit code 1 and names what differs, with what is stored and what it has to be.
    """
    found = (await server.send("GET", "/ledger/verify", seconds=VERIFY_SECONDS))["data"]
    if found["clean"]:
        clean = {name: found[name] for name in ("postings", "generations")}
        return Report(found, Record({"differences": 0, **clean}))
    listing = Table(found["differences"], ["what", "whose", "stored", "recomputed"])
    return Report(found, listing, exit_code=DIFFERS)


@ledger_app.control(
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
        Option(
            "--detail",
            help="Each charge with its generation, instead of a line for each day and model.",
        ),
    ] = False,
    offset: Annotated[int, Option(min=0, help="How many lines to skip.")] = 0,
    limit: Annotated[int, Option(min=1, max=1000, help="How many lines to show at most.")] = 1000,
    account: Account = None,
) -> Report:
    """Show what happened to an account's money, from the opening to the closing balance."""
    asked = {"from": since, "to": until, "detail": detail, "offset": offset, "limit": limit}
    found = (await server.get("/ledger/statement", account_id=account, **asked))["data"]
    lines: list[Item] = [
        {"kind": "opening", "balance": found["opening_balance"]},
        *found["lines"],
        {"kind": "closing", "amount": found["change"], "balance": found["closing_balance"]},
    ]
    when = Column("when", lambda line: line.get("created_at") or line.get("date"))
    columns = [when, "kind", "amount", "balance", Column("about", _about), "note"]
    return Report(found, Table(lines, columns))


def _about(line: Item) -> str | None:
    if line.get("generation_id"):
        return line["generation_id"]
    if line["kind"] == "usage":
        return f"{line['model'] or 'unknown'} x {line['count']}"
    return line.get("posting_id")


@ledger_app.control(
    "unknown", "tollhouse ledger unknown", "tollhouse ledger unknown --account acme --json"
)
async def unknown(server: Server, account: OneAccount = None) -> Table:
    """List generations of unknown cost, newest first; of all accounts for an operator.

    `tollhouse credits adjust AMOUNT --generation ID --note TEXT` settles one.
    """
    found = await _unsettled(server, "unknown", account)
    return Table(found, [*_UNSETTLED, column("upstream_id", "provider's id")])


@ledger_app.control(
    "interrupted",
    "tollhouse ledger interrupted",
    "tollhouse ledger interrupted --account acme --json",
)
async def interrupted(server: Server, account: OneAccount = None) -> Table:
    """List generations that a kill of the gateway interrupted; of all accounts for an operator.

    A provider was asked and may bill them; nothing was charged. The estimate is the most that each
    was thought to cost. `tollhouse credits adjust AMOUNT --generation ID --note TEXT` settles one.
    """
    found = await _unsettled(server, "interrupted", account)
    return Table(found, [*_UNSETTLED, column("estimated_cost", "estimate")])


_UNSETTLED: Final = (
    *("id", column("created_at", "created"), column("account_id", "account")),
    *("model", column("provider_name", "provider")),
)


async def _unsettled(server: Server, which: str, account: str | None) -> list[Item]:
    named = None if account is None else await resource_id(server, "account", account)
    return (await server.get(f"/ledger/{which}", account_id=named))["data"]


@ledger_app.control("holders", "tollhouse ledger holders", "tollhouse ledger holders --json")
async def holders(server: Server) -> Table:
    """List the processes that spend balances and limits together; needs an operator.

    Each has a part of every balance that it spends of. There are none with one server on SQLite
    without workers.
    """
    found = (await server.get("/ledger/holders"))["data"]
    columns = ["id", "machine", "live", column("started_at", "started"), "granted", "budgets"]
    return Table(found, columns)


@ledger_app.control(
    "write-off",
    "tollhouse ledger write-off 5f3a0c1e-7a55-4b1e-9d0e-0c5b8f1d2e3f",
    "tollhouse ledger write-off 5f3a0c1e-7a55-4b1e-9d0e-0c5b8f1d2e3f --return-rights",
)
async def write_off(
    server: Server,
    holder: Annotated[str, Argument(metavar="HOLDER", help="Its id, as `holders` shows it.")],
    return_rights: Annotated[
        bool,
        Option(
            "--return-rights",
            help="Let others spend what it had at once: more may be spent than there is, if it "
            "spent some of that.",
        ),
    ] = False,
) -> Record:
    """Write off a process that is gone for good, with its machine; needs an operator.

    What it had of balances and limits counts as used. It is free again once a server starts on its
    data folder, which books what it has charged; with `--return-rights` it is free at once.
    """
    path, wish = (
        f"/ledger/holders/{quote(holder, safe='')}/write-off",
        {"return_rights": return_rights},
    )
    return Record((await server.send("POST", path, wish))["data"])
