r"""What a text stands for, read through escapes of JSON, URLs and HTML. Pure.

    token=gh0%5Cu002babc    the text
    token=gh0\u002babc      its escapes of URLs undone
    token=gh0+abc           and those of JSON in that

`readings` returns the text and all that it can be read as; each reading tells where a part of it
stands in the text.

Source: RFC 8259, section 7 (strings); RFC 3986, section 2.1 (URLs); the HTML standard, section
13.2.5 (character references).
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DEPTH: Final = 3
"""How many escapes are undone, one in the other."""


class _Escape(NamedTuple):
    """One way of writing characters as others."""

    mark: bytes
    """What stands in each."""
    pattern: re.Pattern[bytes]
    undo: Callable[[re.Match[bytes]], bytes]


_LAST_CHARACTER: Final = 0x10_FFFF
_NAMED: Final = {
    rb"\b": b"\b",
    rb"\f": b"\f",
    rb"\n": b"\n",
    rb"\r": b"\r",
    rb"\t": b"\t",
    rb"\"": b'"',
    rb"\/": b"/",
    rb"\\": b"\\",
}
_HEXADECIMAL: Final = {
    b"%" + digits: bytes([byte])
    for byte in range(256)
    for digits in {b"%02x" % byte, b"%02X" % byte}
}


def _of_string(match: re.Match[bytes]) -> bytes:
    known = _NAMED.get(match[0])
    if known is not None:
        return known
    named, byte, high, low, code, braced = match.groups()
    if named:
        return named
    if byte:
        return bytes.fromhex(byte.decode())
    if high:
        return bytes.fromhex((high + low).decode()).decode("utf-16-be").encode()
    number = int(code or braced, 16)
    return chr(min(number, _LAST_CHARACTER)).encode(errors="surrogatepass")


def _of_url(match: re.Match[bytes]) -> bytes:
    return _HEXADECIMAL.get(match[0]) or bytes.fromhex(match[0][1:].decode())


def _of_page(match: re.Match[bytes]) -> bytes:
    return html.unescape(match[0].decode()).encode()


def _of_break(_: re.Match[bytes]) -> bytes:
    return b""


_ESCAPES: Final[Sequence[_Escape]] = (
    _Escape(  # also \x2b and \u{2b}, as JavaScript, Python, Go and Rust write them
        b"\\",
        re.compile(
            rb"\\(?:([^ux])|x([0-9a-fA-F]{2})"
            rb"|u(?:([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
            rb"|([0-9a-fA-F]{4})|\{([0-9a-fA-F]{1,6})\}))",
            re.DOTALL,
        ),
        _of_string,
    ),
    _Escape(b"%", re.compile(rb"%[0-9a-fA-F]{2}"), _of_url),
    _Escape(
        b"&",
        re.compile(rb"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[a-zA-Z][a-zA-Z0-9]{1,31};)"),
        _of_page,
    ),
)
_BREAKS: Final = _Escape(b"", re.compile(rb"[\r\n]+"), _of_break)


class EscapeReading:
    """What a text stands for."""

    def __init__(
        self, text: bytes, of: EscapeReading | None = None, escape: _Escape = _BREAKS
    ) -> None:
        """Take it, and what it is a reading of."""
        self.text: Final = text
        self._of: Final = of
        self._escape: Final = escape

    def without(self, escape: _Escape) -> EscapeReading:
        """Return this one with escapes undone."""
        return EscapeReading(escape.pattern.sub(escape.undo, self.text), self, escape)

    def without_breaks(self) -> EscapeReading:
        """Return this one without its line breaks."""
        text = self.text.translate(None, b"\r\n")
        return self if len(text) == len(self.text) else EscapeReading(text, self)

    def source(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of this reading stands in the text."""
        if self._of is None:
            return start, end
        begin, _ = self._above(start)
        _, finish = self._above(end - 1)
        return self._of.source(begin, finish)

    def _above(self, at: int) -> tuple[int, int]:
        """Return what one byte was written as."""
        places, spans = self._undone
        last = bisect_right(places, at) - 1
        if last < 0:
            return at, at + 1
        place, size, start, end = spans[last]
        if at < place + size:
            return start, end
        above = end + at - place - size
        return above, above + 1

    @cached_property
    def _undone(self) -> tuple[list[int], list[tuple[int, int, int, int]]]:
        """Where escapes were undone: the places here; with their sizes, and what was there."""
        above = b"" if self._of is None else self._of.text
        spans: list[tuple[int, int, int, int]] = []
        shift = 0
        for match in self._escape.pattern.finditer(above):
            start, end = match.span()
            size = len(self._escape.undo(match))
            spans.append((start - shift, size, start, end))
            shift += end - start - size
        return [span[0] for span in spans], spans


def readings(text: bytes) -> Iterator[EscapeReading]:
    """Yield what a text stands for, the text as it is first; all without line breaks."""
    first = EscapeReading(text)
    yield first.without_breaks()
    level, seen = [first], {text}
    for _ in range(DEPTH):
        deeper: list[EscapeReading] = []
        for reading in level:
            for escape in _ESCAPES:
                if escape.mark not in reading.text:
                    continue
                read = reading.without(escape)
                if read.text not in seen:
                    seen.add(read.text)
                    deeper.append(read)
                    yield read.without_breaks()
        if not deeper:
            return
        level = deeper
