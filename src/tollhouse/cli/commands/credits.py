"""`tollhouse credits`: the money of an account."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import changes, control_command, noun
from tollhouse.cli.options import Account
from tollhouse.cli.output import Record
from tollhouse.cli.values import amount, credits_text, header_text

app = noun("credits", "Credits: what an account has and what it used. 1 credit is 1 USD.")


@control_command(
    app,
    "add",
    "tollhouse credits add 25",
    'tollhouse credits add 5 --grant --note "for the trial"',
    "tollhouse credits add 100 --account ID --idempotency-key invoice-17",
)
async def add(
    server: Server,
    given: Annotated[
        str, typer.Argument(metavar="AMOUNT", help="How many, with at most nine decimals.")
    ],
    grant: Annotated[
        bool, typer.Option("--grant", help="A gift. Without it the credits count as paid for.")
    ] = False,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A remark for the statement.")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Repeating the command with the same key adds nothing."),
    ] = None,
    account: Account = None,
) -> Record:
    """Add credits to an account; needs an operator."""
    body = changes(
        amount=amount(given),
        kind="grant" if grant else "purchase",
        note=note,
        account_id=account,
    )
    headers: dict[str, str] = {}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = header_text(idempotency_key, "--idempotency-key")
    return Record((await server.send("POST", "/credits", body, headers=headers))["data"])


@control_command(app, "show", "tollhouse credits show", "tollhouse credits show --account ID")
async def show(server: Server, account: Account = None) -> Record:
    """Show what an account was given, what it used and what is left."""
    found = (await server.get("/credits", account_id=account))["data"]
    left = credits_text(found["total_credits"] - found["total_usage"])
    return Record({**found, "balance": float(left)})
