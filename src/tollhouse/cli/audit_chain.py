"""A record's chain as it is exported, a JSON object in each line, and whether it holds. Pure."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, cast

from tollhouse.audit.chain import ChainVerifier
from tollhouse.audit.types import ChainFault, ChainHead
from tollhouse.cli.output import Record, Report
from tollhouse.kernel.errors import StartError

TAMPERED: Final = 1
_HEAD: Final = re.compile(r"(0|[1-9][0-9]{0,15}):([0-9a-f]{64})")


def format_head(head: ChainHead) -> str:
    """Return the end of a chain as it is noted."""
    return f"{head.seq}:{head.hash}"


def parse_head(text: str) -> ChainHead:
    """Return the end of a chain that was noted earlier; StartError if it is none."""
    found = _HEAD.fullmatch(text.strip())
    if found is None:
        raise StartError(f"--head: {text!r} is no SEQ:HASH, as `tollhouse audit verify` prints it")
    return ChainHead(int(found[1]), found[2])


class ChainCheck:
    """Checks a chain piece by piece, also against a head that was noted earlier."""

    def __init__(self, noted: ChainHead | None) -> None:
        self._verifier = ChainVerifier()
        self._noted = noted

    @property
    def head(self) -> ChainHead:
        """The last row that was as it should be."""
        return self._verifier.head

    def fault_in(self, rows: Iterable[dict[str, Any]]) -> ChainFault | None:
        """Check further rows; return the first that is wrong."""
        for row in rows:
            if fault := self._verifier.fault_in((row,)):
                return fault
            if self._noted and self._noted.seq == self.head.seq and self._noted != self.head:
                return ChainFault(
                    self.head.seq, "it is not the row that it was when --head was noted"
                )
        return None

    def fault_in_lines(self, lines: Iterable[bytes]) -> ChainFault | None:
        """Check further rows, as they stand in a file."""
        for line in lines:
            if not line.strip():
                continue
            row = _row(line)
            if row is None:
                return ChainFault(self.head.seq + 1, "what stands in its line is no JSON object")
            if fault := self.fault_in((row,)):
                return fault
        return None

    def fault_at_end(self, head: ChainHead | None) -> ChainFault | None:
        """Return what is missing at the end; the head is None where only the rows are there."""
        if head is not None and (fault := self._verifier.fault_at_end(head)):
            return fault
        if self._noted is None or self._noted.seq <= self.head.seq:
            return None
        first, last = self.head.seq + 1, self._noted.seq
        return ChainFault(first, f"rows {first} to {last} are gone, which were there with --head")


def check_report(check: ChainCheck, fault: ChainFault | None, note: str | None) -> Report:
    """Return what is shown of a check, which ends with 1 where it found a fault."""
    if fault is not None:
        found: dict[str, Any] = {"row": fault.seq, "reason": fault.reason}
        return Report({"ok": False, **found}, Record(found), exit_code=TAMPERED)
    found = {"rows": check.head.seq, "head": format_head(check.head)}
    return Report({"ok": True, **found}, Record(found, note=note))


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
