"""Takes secrets out of what others answer, however it comes in pieces. Pure.

    ...token=gh0_abcdef...   ──>   ...token=**********...

A text is searched as it is, with escapes of JSON, URLs and HTML undone (see `readings`), and
without its line breaks. There a value is looked for as it is, in one case alone, in hexadecimal,
and in base64 at its three alignments. All but its line breaks is replaced by as many asterisks. The
search takes time in proportion to the text, also where texts and values repeat themselves.

The end of what has come is held back, and how much of it depends on lengths, on line feeds and on
which lines look like base64. If only what could be the beginning of a value waited, or if
beginnings were hidden as well, then whoever has a host send guesses back could see which of them
are right, and learn the value letter by letter.

A host can show a value in a way that is not on the list: binding a secret to a host is trust in it.
"""

from __future__ import annotations

import base64
import html
import re
import sys
from bisect import bisect_right
from collections import defaultdict
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence


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
    """One way to read a text; knows where a part of it stands in the text."""

    def __init__(
        self, text: bytes, of: EscapeReading | None = None, escape: _Escape = _BREAKS
    ) -> None:
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
    r"""Yield all that a text can be read as; the text itself first, and all without line breaks.

    `token=gh0%5Cu002babc` is also read as `token=gh0\u002babc` (its escapes of URLs undone) and as
    `token=gh0+abc` (those of JSON in that, too).

    Source: RFC 8259, section 7 (strings); RFC 3986, section 2.1 (URLs); the HTML standard, section
    13.2.5 (character references).
    """
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


SHORTEST: Final = 4
"""Bytes of a form that is looked for: shorter ones stand everywhere by chance."""
LONGEST: Final = 256
"""Bytes that are looked for as one; a longer value is looked for in pieces.

What is held back is searched again with what comes: the shorter the pieces, the less that is.
"""
_SHARED: Final = 2
"""Characters that neighbouring pieces share: a digit of base64 may hold bits of two bytes."""
LONGEST_SPELLING: Final = 8
"""Bytes that one byte of a value is written as at most, where it comes in pieces."""
_HIDDEN: Final = bytes(byte if byte in b"\r\n" else ord("*") for byte in range(256))
_URLSAFE: Final = bytes.maketrans(b"+/", b"-_")
_BASE64_LINE: Final = re.compile(rb"[A-Za-z0-9+/_-]{60}\r?\n\Z")
"""The end of a line that may go on in the next one.

Source: RFC 2045, section 6.8 (76 columns); RFC 7468, section 2 (64). Some programs write 60.
"""
_LINE_END: Final = 62
_BLOCK: Final = 8
"""Bytes of which the search makes one number, to look many forms up at once."""
_RUNS: Final = 2
_MOST_RUNS: Final = 64
"""Above so many, looking for each takes longer than undoing the escapes of most texts."""
_RUN: Final = re.compile(rb"[A-Za-z0-9]{4,8}")
_LETTER: Final = rb"(?:2[56]|3[0-9]|[46][1-9a-fA-F]|5[0-9aAcC]|7[0-9aA])"
_ESCAPED_LETTERS: Final = (
    re.compile(rb"\\(?:u00|x)" + _LETTER),
    re.compile(rb"\\u\{"),
    re.compile(rb"%" + _LETTER),
    re.compile(rb"&(?:(?:amp;)*#|bsol;|percnt;)"),
)
"""Escapes of letters, of digits, and of what other escapes begin with. One pattern is slower."""


def forms_of(value: str) -> frozenset[bytes]:
    """Return the byte strings that stand for a value, once escapes are undone."""
    return frozenset(
        form for piece in _pieces(value) for form in _forms_of(piece) if len(form) >= SHORTEST
    )


def _pieces(value: str) -> Iterator[str]:
    size = LONGEST // max((len(character.encode()) for character in value), default=1)
    for start in range(0, max(1, len(value) - _SHARED), size - _SHARED):
        yield value[start : start + size]


def _forms_of(value: str) -> Iterator[bytes]:
    raw = value.encode()
    yield from (raw, value.lower().encode(), value.upper().encode())
    yield raw.replace(b" ", b"+")  # a form's, whose other characters are escaped
    yield from (raw.hex().encode(), raw.hex().upper().encode())
    for form in _in_base64(raw):
        yield from (form, form.translate(_URLSAFE))


def _in_base64(raw: bytes) -> Iterator[bytes]:
    """Yield what base64 shows of a value behind 0, 1 and 2 other bytes, without shared digits."""
    for before in range(3):
        digits = base64.b64encode(bytes(before) + raw).rstrip(b"=")
        first = -(-before * 8 // 6)
        whole = (before + len(raw)) * 8 // 6
        yield digits[first:whole]


class Redactor:
    """Takes values out of one stream of bytes."""

    __slots__ = ("_blocks", "_borders", "_forms", "_gone", "_reach", "_runs", "_short", "_text")

    def __init__(self, values: Iterable[str], forms: frozenset[bytes] = frozenset()) -> None:
        """Look for some values, and for forms of others."""
        self._forms: Final = forms.union(*map(forms_of, values))
        longest = max(map(len, self._forms), default=0)
        self._reach: Final = longest * LONGEST_SPELLING // 2  # the longest is in hexadecimal
        self._runs: Final = _runs(self._forms)
        self._short: Final = [form for form in self._forms if len(form) < 2 * _BLOCK - 1]
        self._blocks: Final = _blocks(self._forms.difference(self._short))
        self._borders: Final[dict[bytes, Sequence[int]]] = {}
        self._text = b""
        """What is held back, behind what has gone on and may be the beginning of a value."""
        self._gone = 0
        """How much of it has gone on."""

    def anew(self, values: Iterable[str] = ()) -> Redactor:
        """Return one for another stream, which looks for the same values, and for some more."""
        added = tuple(values)
        if added:
            return Redactor(added, self._forms)
        other = copy(self)  # to sort many forms again takes long
        other._text, other._gone = b"", 0  # noqa: SLF001
        return other

    def feed(self, data: bytes) -> bytes:
        """Return what may go on of what has come until now."""
        self._text += data
        line = self._text.rfind(b"\n", self._gone) + 1
        if line and _BASE64_LINE.search(self._text, max(0, line - _LINE_END), line):
            line = 0
        # All that is held is searched again with what comes: it has to be worth it.
        if len(self._text) - max(line, self._gone) >= 2 * self._reach:
            return self._passed(len(self._text) - self._reach)
        return self._passed(line, ended=True) if line else b""

    def flush(self, last: bytes = b"") -> bytes:
        """Return what was held back and what came last; what follows is a part of it no more.

        A value that began before and ends in what follows is still found.
        """
        self._text += last
        return self._passed(len(self._text))

    def mask(self, whole: bytes) -> bytes:
        """Return a text with asterisks in place of values."""
        masked = bytearray(whole)
        for start, end in self._places(whole):
            masked[start:end] = masked[start:end].translate(_HIDDEN)
        return bytes(masked)

    def _passed(self, cut: int, *, ended: bool = False) -> bytes:
        """Return the masked text up to a place, and hold the rest back."""
        out = self.mask(self._text)[self._gone : cut]
        first = cut if ended else max(0, cut - self._reach)
        self._text, self._gone = self._text[first:], cut - first
        return out

    def _places(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield where values stand; they may overlap each other."""
        if not self._may_hold_values(text):
            return
        for reading in readings(text):
            for form in self._candidates(reading.text):
                for start, end in self._occurrences(reading.text, form):
                    yield reading.source(start, end)

    def _may_hold_values(self, text: bytes) -> bool:
        """Tell, at little cost, whether it is worth to undo escapes."""
        return bool(self._forms) and (
            self._runs is None
            or any(run in text for run in self._runs)
            or any(escape.search(text) for escape in _ESCAPED_LETTERS)
        )

    def _candidates(self, text: bytes) -> set[bytes]:
        """Return the forms that may stand in a text, at a cost that does not grow with the forms.

        Wherever a form stands, one of its first whole blocks is one of the text's, too.
        """
        whole = memoryview(text)[: len(text) // _BLOCK * _BLOCK].cast("Q")
        return set(self._short).union(
            *(self._blocks[block] for block in self._blocks.keys() & whole)
        )

    def _occurrences(self, text: bytes, form: bytes) -> Iterator[tuple[int, int]]:
        """Yield where a form stands; those that overlap as one."""
        start = text.find(form)
        while start >= 0:
            end = self._end_of_overlapping(text, form, start + len(form))
            yield start, end
            start = text.find(form, end)

    def _end_of_overlapping(self, text: bytes, form: bytes, end: int) -> int:
        """Return where the last of the occurrences ends that overlap the one before them.

        Source: Knuth, Morris and Pratt, "Fast pattern matching in strings", 1977.
        """
        borders = self._borders.setdefault(form, ()) or _borders(form)
        self._borders[form] = borders
        period = len(form) - borders[-1]
        for step in (borders[-1] // period * period, period):  # many at once, then one by one
            while step and text.startswith(form[-step:], end):
                end += step
        matched, at = borders[-1], end
        while matched > at - end and at < len(text):
            while matched and form[matched] != text[at]:
                matched = borders[matched - 1]
            matched += form[matched] == text[at]
            at += 1
            if matched == len(form):
                matched, end = borders[-1], at
        return end


def _runs(forms: Iterable[bytes]) -> Collection[bytes] | None:
    """Return parts of forms of which a text has one, if it has a form without escaped letters.

    Two of each form, for a line break may be in one of them. None where a form has no two, or where
    they are too many.
    """
    found: set[bytes] = set()
    for form in forms:
        runs = _RUN.findall(form)[:_RUNS]
        if len(runs) < _RUNS:
            return None
        found.update(runs)
    return found if len(found) <= _MOST_RUNS else None


def _blocks(forms: Iterable[bytes]) -> dict[int, set[bytes]]:
    """Return the blocks that a form begins with, wherever in a block it begins; with the forms."""
    found: defaultdict[int, set[bytes]] = defaultdict(set)
    for form in forms:
        for at in range(_BLOCK):
            found[int.from_bytes(form[at : at + _BLOCK], sys.byteorder)].add(form)
    return dict(found)


def _borders(form: bytes) -> Sequence[int]:
    """Return, for each beginning of a form, how much of its end is also its beginning."""
    borders, matched = [0], 0
    for byte in form[1:]:
        while matched and form[matched] != byte:
            matched = borders[matched - 1]
        matched += form[matched] == byte
        borders.append(matched)
    return borders
