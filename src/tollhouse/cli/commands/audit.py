"""`tollhouse audit`: the record of what was changed, and whether it was tampered with."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tollhouse.audit.types import ChainHead
from tollhouse.cli.client import Server
from tollhouse.cli.control import CommandGroup
from tollhouse.cli.options import Account, Force, Output
from tollhouse.cli.output import STANDARD_OUTPUT, AlreadyWritten, Record, Report, open_output
from tollhouse.kernel.errors import StartError

app = CommandGroup("audit", "The record of who changed what, in a chain that shows tampering.")

PAGE = 1_000
LONG = 10_000
"""Rows from which on a terminal shows how far it came."""

Installation = Annotated[
    bool,
    Option("--installation", help="The log of what concerns no single account; for an operator."),
]


@app.control(
    "export",
    "tollhouse audit export -o audit.jsonl",
    "tollhouse audit export --account acme | jq -r .action",
    "tollhouse audit export --installation -o installation.jsonl --force",
)
async def export(
    server: Server,
    output: Output = None,
    force: Force = False,
    account: Account = None,
    installation: Installation = False,
) -> Record | AlreadyWritten:
    """Write every row of an account's record as JSON Lines, oldest first.

    It is written as it is stored: `tollhouse audit verify FILE` says whether it holds.
    """
    from tollhouse.cli.audit_chain import format_head

    count, head = 0, ""
    with open_output(output, force=force) as sink:
        async with aclosing(_pages(server, account, installation=installation)) as pages:
            async for page, end in pages:
                count, head = count + len(page), format_head(end)
                if not sink("".join(f"{json.dumps(row)}\n" for row in page)):
                    break
    if output in {None, STANDARD_OUTPUT}:
        return AlreadyWritten(f"{count:,} rows; the head to keep is {head}")
    return Record({"rows": count, "head": head})


def _of_file(
    file: str | None = None,
    head: str | None = None,
    account: str | None = None,
    installation: bool = False,
) -> Report | None:
    """Verify an export, for which no server is needed."""
    if file is None:
        return None
    if account is not None or installation:
        raise StartError("--account and --installation choose a record of a server: leave them out")
    from tollhouse.cli.audit_chain import ChainCheck, check_report, parse_head

    check = ChainCheck(None if head is None else parse_head(head))
    try:
        if file == "-":
            fault = check.fault_in_lines(sys.stdin.buffer)
        else:
            with Path(file).open("rb") as lines:
                fault = check.fault_in_lines(lines)
    except OSError as error:
        raise StartError(f"{file} cannot be read ({error.strerror})") from None
    note = None if head else "Rows that are missing at the end show only with --head."
    return check_report(check, fault or check.fault_at_end(None), note)


@app.control(
    "verify",
    "tollhouse audit verify",
    "tollhouse audit verify audit.jsonl --head SEQ:HASH",
    "tollhouse audit verify --json | jq -r .head",
    alone=_of_file,
)
async def verify(
    server: Server,
    file: Annotated[
        str | None,
        Argument(
            metavar="FILE", help="An export; - is standard input. The server's record unless given."
        ),
    ] = None,
    head: Annotated[
        str | None,
        Option(
            metavar="SEQ:HASH",
            help="A head that was noted earlier: its row has to be there still, with its hash.",
        ),
    ] = None,
    account: Account = None,
    installation: Installation = False,
) -> Report:
    """Verify the chain of an account's record, and print its head to keep elsewhere.

    Ends with exit code 1 and names the first row at which it is not as it was written.
    """
    from tollhouse.cli.audit_chain import ChainCheck, check_report, parse_head

    del file  # a file is verified without a server
    check, fault, end = ChainCheck(None if head is None else parse_head(head)), None, None
    async with aclosing(_pages(server, account, installation=installation)) as pages:
        async for page, end in pages:
            if (fault := check.fault_in(page)) is not None:
                break
            _show_progress(check.head.seq, end.seq)
    if fault is None:
        fault = check.fault_at_end(end)
    return check_report(check, fault, "Keep the head elsewhere, and verify against it with --head.")


async def _pages(
    server: Server, account: str | None, *, installation: bool
) -> AsyncGenerator[tuple[list[dict[str, Any]], ChainHead]]:
    """Yield a record's rows page by page, each with the end of the chain as it was then."""
    after, more = 0, True
    while more:
        page = await server.get(
            "/audit", account_id=account, installation=installation or None, after=after, limit=PAGE
        )
        yield page["data"], ChainHead(page["head"]["seq"], page["head"]["hash"])
        more = page["has_more"] and bool(page["data"])
        after = page["data"][-1]["seq"] if page["data"] else after


def _show_progress(done: int, total: int) -> None:
    """Say how far a long chain is read, on a terminal, in a line that goes away at its end."""
    if total >= LONG and sys.stderr.isatty():
        text = f"\r{done:,} of {total:,} rows" if done < total else "\r\033[K"
        print(text, end="", file=sys.stderr, flush=True)
