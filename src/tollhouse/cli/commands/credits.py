"""`tollhouse credits`: the money of an account."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun
from tollhouse.cli.options import Account
from tollhouse.cli.output import Record
from tollhouse.cli.values import amount, credits_text, header_text, signed_amount

app = noun("credits", "Credits: what an account has and what it used. 1 credit is 1 USD.")

Amount = Annotated[
    str, typer.Argument(metavar="AMOUNT", help="How many, with at most nine decimals.")
]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="A remark for the statement.")]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Repeating the command with the same key changes nothing."),
]


@control_command(
    app,
    "add",
    "tollhouse credits add 25",
    "tollhouse credits add 100 --account acme --idempotency-key invoice-17",
)
async def add(
    server: Server,
    given: Amount,
    grant: Annotated[
        bool, typer.Option("--grant", help="Grant the credits, as `tollhouse credits grant` does.")
    ] = False,
    note: Note = None,
    idempotency_key: IdempotencyKey = None,
    account: Account = None,
) -> Record:
    """Add purchased credits to an account; needs an operator."""
    kind = "grant" if grant else "purchase"
    return await _post(
        server,
        idempotency_key,
        amount=amount(given),
        kind=kind,
        note=note,
        account_id=account,
    )


@control_command(
    app,
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
    return await _post(
        server,
        idempotency_key,
        amount=amount(given),
        kind="grant",
        note=note,
        account_id=account,
    )


@control_command(
    app,
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
    return await _post(
        server,
        idempotency_key,
        amount=amount(given),
        kind="refund",
        note=note,
        account_id=account,
    )


@control_command(
    app,
    "adjust",
    'tollhouse credits adjust -0.02 --generation gen-... --note "the provider billed it"',
    'tollhouse credits adjust 1.5 --note "an outage" --account acme --idempotency-key outage-4',
    dashes=True,
)
async def adjust(
    server: Server,
    given: Annotated[
        str,
        typer.Argument(
            metavar="AMOUNT", help="Credits to add; a negative amount removes them: -0.02."
        ),
    ],
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="The reason; it appears in the statement.")
    ],
    generation: Annotated[
        str | None,
        typer.Option(
            "--generation",
            metavar="ID",
            help="The generation that is corrected; one of unknown cost is then settled.",
        ),
    ] = None,
    idempotency_key: IdempotencyKey = None,
    account: Account = None,
) -> Record:
    """Correct an account's balance, up or down; needs an operator."""
    return await _post(
        server,
        idempotency_key,
        amount=signed_amount(given),
        kind="adjustment",
        note=note,
        generation_id=generation,
        account_id=account,
    )


@control_command(app, "show", "tollhouse credits show", "tollhouse credits show --account acme")
async def show(server: Server, account: Account = None) -> Record:
    """Show what an account was given, what it used and what is left."""
    found = (await server.get("/credits", account_id=account))["data"]
    left = credits_text(found["total_credits"] - found["total_usage"])
    return Record({**found, "balance": float(left)})


async def _post(server: Server, idempotency_key: str | None, **fields: object) -> Record:
    headers: dict[str, str] = {}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = header_text(idempotency_key, "--idempotency-key")
    sent = await server.send("POST", "/credits", changes(**fields), headers=headers)
    return Record(sent["data"])
