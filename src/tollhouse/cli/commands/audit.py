"""`tollhouse audit`: the record of what was changed, and whether it was tampered with."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.control import control_command, noun
from tollhouse.cli.options import Account, Force, Output
from tollhouse.cli.output import Record, Report, Shown, Written
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from tollhouse.audit.types import ChainFault
    from tollhouse.cli.chains import Check

app = noun("audit", "The record of who changed what, in a chain that shows tampering.")

TAMPERED = 1
PAGE = 1_000
LONG = 10_000
"""Rows from which on a terminal shows how far it came."""

Installation = Annotated[
    bool,
    typer.Option(
        "--installation", help="The log of what concerns no single account; for an operator."
    ),
]


@control_command(
    app,
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
) -> Record | Written:
    """Write every row of an account's record as JSON Lines, oldest first.

    It is written as it is stored: `tollhouse audit verify FILE` says whether it holds.
    """
    from tollhouse.cli.chains import head_in, head_text
    from tollhouse.cli.sinks import STANDARD_OUTPUT, opened

    count, head = 0, ""
    with opened(output, force=force) as sink:
        async with aclosing(_pages(server, account, installation=installation)) as pages:
            async for page in pages:
                count, head = count + len(page["data"]), head_text(head_in(page))
                if not sink("".join(f"{json.dumps(row)}\n" for row in page["data"])):
                    break
    if output in {None, STANDARD_OUTPUT}:
        return Written(f"{count:,} rows; the head to keep is {head}")
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
        message = "--account and --installation choose a record of a server: leave them out"
        raise StartError(message)
    check = _check(head)
    try:
        if file == "-":
            fault = check.fault_in_lines(sys.stdin.buffer)
        else:
            with Path(file).open("rb") as lines:
                fault = check.fault_in_lines(lines)
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror})"
        raise StartError(message) from None
    note = None if head else "Rows that are missing at the end show only with --head."
    return _report(check, fault or check.fault_at_end(None), note)


@control_command(
    app,
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
        typer.Argument(
            metavar="FILE",
            help="An export; - is standard input. The server's record unless given.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="SEQ:HASH",
            help="A head that was noted earlier: its row has to be there still, with its hash.",
        ),
    ] = None,
    account: Account = None,
    installation: Installation = False,
) -> Shown:
    """Verify the chain of an account's record, and print its head to keep elsewhere.

    Ends with exit code 1 and names the first row at which it is not as it was written.
    """
    from tollhouse.cli.chains import head_in

    del file  # a file is verified without a server
    check, fault, end = _check(head), None, None
    async with aclosing(_pages(server, account, installation=installation)) as pages:
        async for page in pages:
            fault, end = check.fault_in(page["data"]), head_in(page)
            if fault is not None:
                break
            _show_progress(check.head.seq, end.seq)
    if fault is None:
        fault = check.fault_at_end(end)
    return _report(check, fault, "Keep the head elsewhere, and verify against it with --head.")


async def _pages(
    server: Server, account: str | None, *, installation: bool
) -> AsyncGenerator[dict[str, Any]]:
    """Yield a record page by page; its last page says where it ends."""
    after, more = 0, True
    while more:
        page = await server.get(
            "/audit",
            account_id=account,
            installation=installation or None,
            after=after,
            limit=PAGE,
        )
        yield page
        more = page["has_more"] and bool(page["data"])
        after = page["data"][-1]["seq"] if page["data"] else after


def _check(head: str | None) -> "Check":
    from tollhouse.cli.chains import Check, noted_head

    return Check(None if head is None else noted_head(head))


def _report(check: "Check", fault: "ChainFault | None", note: str | None) -> Report:
    from tollhouse.cli.chains import head_text

    if fault is not None:
        found: dict[str, Any] = {"row": fault.seq, "reason": fault.reason}
        return Report({"ok": False, **found}, Record(found), exit_code=TAMPERED)
    found = {"rows": check.head.seq, "head": head_text(check.head)}
    return Report({"ok": True, **found}, Record(found, note=note))


def _show_progress(done: int, total: int) -> None:
    """Say how far a long chain is read, on a terminal, in a line that goes away at its end."""
    if total >= LONG and sys.stderr.isatty():
        text = f"\r{done:,} of {total:,} rows" if done < total else "\r\033[K"
        print(text, end="", file=sys.stderr, flush=True)
