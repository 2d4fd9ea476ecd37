"""A record's chain as it is exported, a JSON object in each line, and whether it holds. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.audit.chain import ChainVerifier
from tollhouse.audit.types import ChainFault, ChainHead
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD: Final = re.compile(r"(0|[1-9][0-9]{0,15}):([0-9a-f]{64})")


def head_text(head: ChainHead) -> str:
    """Return the end of a chain as it is noted."""
    return f"{head.seq}:{head.hash}"


def head_in(page: dict[str, Any]) -> ChainHead:
    """Return the end of the chain that a page of a server's is of."""
    return ChainHead(page["head"]["seq"], page["head"]["hash"])


def noted_head(text: str) -> ChainHead:
    """Return the end of a chain that was noted earlier.

    Raises:
        StartError: It is none.
    """
    found = _HEAD.fullmatch(text.strip())
    if found is None:
        message = f"--head: {text!r} is no SEQ:HASH, as `tollhouse audit verify` prints it"
        raise StartError(message)
    return ChainHead(int(found[1]), found[2])


class Check:
    """Checks a chain piece by piece, also against a head that was noted earlier."""

    def __init__(self, noted: ChainHead | None) -> None:
        """Begin at the chain's start."""
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
        """Return what is missing at the end.

        Args:
            head: Where the chain ends, as the server says; None where only the rows are there.
        """
        if head is not None and (fault := self._verifier.fault_at_end(head)):
            return fault
        if self._noted is None or self._noted.seq <= self.head.seq:
            return None
        first, last = self.head.seq + 1, self._noted.seq
        return ChainFault(first, f"rows {first} to {last} are gone, which were there with --head")


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
