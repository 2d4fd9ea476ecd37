"""Takes secrets out of what a host answers, however it comes in pieces. Pure.

    ...token=gh0_abcdef...   ──>   ...token=**********...

A value is looked for as it is, in one case alone, escaped as in JSON and HTML, quoted as in URLs,
in hexadecimal, and in base64 at its three alignments. It is replaced by as many asterisks, so that
lengths stay what they are.

The end of what has come is held back, and how much of it depends on lengths and line feeds alone,
which no value holds. If only what could be the beginning of a value waited, then whoever has a host
send guesses back could see which of them are right, and learn the value letter by letter.

A host can show a value in a way that is not on the list: binding a secret to a host is trust in it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST: Final = 4
"""Bytes of a form that is looked for: shorter ones stand everywhere by chance."""
_UNICODE_ESCAPE: Final = re.compile(r"\\u[0-9a-f]{4}")
_URLSAFE: Final = bytes.maketrans(b"+/", b"-_")


def forms_of(value: str) -> frozenset[bytes]:
    """Return the byte strings that stand for a value."""
    raw = value.encode()
    forms = {raw, raw.hex().encode(), raw.hex().upper().encode()}
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        forms |= {escaped.encode(), escaped.replace("/", "\\/").encode()}
        upper = _UNICODE_ESCAPE.sub(lambda match: match[0][:2] + match[0][2:].upper(), escaped)
        forms |= {upper.encode(), _for_html_in_json(escaped).encode()}
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value), quote(value, "!'()*")):
        forms |= {quoted.encode(), _lower_escapes(quoted).encode()}
    for apostrophe in ("&#x27;", "&#39;", "'"):
        escaped = html.escape(value, quote=False).replace("'", apostrophe)
        forms |= {escaped.replace('"', mark).encode() for mark in ('"', "&quot;", "&#34;")}
    forms |= {value.lower().encode(), value.upper().encode()}
    for form in _in_base64(raw):
        forms |= {form, form.translate(_URLSAFE)}
    return frozenset(form for form in forms if len(form) >= SHORTEST)


def _in_base64(raw: bytes) -> Iterator[bytes]:
    """Yield what base64 shows of a value behind 0, 1 and 2 other bytes, without shared digits."""
    for before in range(3):
        digits = base64.b64encode(bytes(before) + raw).rstrip(b"=")
        first = -(-before * 8 // 6)
        whole = (before + len(raw)) * 8 // 6
        yield digits[first:whole]


def _for_html_in_json(escaped: str) -> str:
    """Return JSON as Go and Rails write it, safe to stand in a page."""
    for character in "&<>":
        escaped = escaped.replace(character, f"\\u{ord(character):04x}")
    return escaped


def _lower_escapes(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return "%".join((head, *(part[:2].lower() + part[2:] for part in rest)))


class Redactor:
    """Takes values out of one stream of bytes."""

    __slots__ = ("_forms", "_held", "_hidden", "_reach")

    def __init__(self, values: Iterable[str], forms: frozenset[bytes] = frozenset()) -> None:
        """Look for some values.

        Args:
            values: Which.
            forms: Of others, which are looked for, too.
        """
        self._forms: Final = forms.union(*map(forms_of, values))
        self._reach: Final = max(map(len, self._forms), default=1) - 1
        self._held = b""
        self._hidden = 0
        """How much of what is held belongs to a value that began before it."""

    def anew(self, values: Iterable[str] = ()) -> Redactor:
        """Return one for another stream, which looks for the same values, and for some more."""
        return Redactor(values, self._forms)

    def feed(self, data: bytes) -> bytes:
        """Return what may go on of what has come until now."""
        seen = self._held + data
        cut = max(0, len(seen) - self._reach, seen.rfind(b"\n") + 1)
        return self._passed(seen, cut)

    def flush(self, last: bytes = b"") -> bytes:
        """Return what was held back and what came last, at the end of the stream."""
        seen = self._held + last
        return self._passed(seen, len(seen))

    def mask(self, whole: bytes) -> bytes:
        """Return a text with asterisks in place of values."""
        masked = bytearray(whole)
        for start, end in self._places(whole):
            masked[start:end] = b"*" * (end - start)
        return bytes(masked)

    def _passed(self, seen: bytes, cut: int) -> bytes:
        """Return the masked beginning of a text, and hold the rest back."""
        hidden = self._hidden
        masked = bytearray(seen)
        masked[:hidden] = b"*" * hidden
        for start, end in self._places(seen):
            masked[start:end] = b"*" * (end - start)
            if start < cut:
                hidden = max(hidden, end)
        self._held, self._hidden = seen[cut:], max(0, hidden - cut)
        return bytes(masked[:cut])

    def _places(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield where values stand; they may overlap, themselves and each other."""
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + 1)
