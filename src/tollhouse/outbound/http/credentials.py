"""Takes the credentials that requests carry out of what is answered to them.

An error of a provider may repeat the headers of the request, and its text is shown to clients. What
a provider says of a failure is searched whole, in every spelling that `kernel.redaction` knows.
Replies are searched for keys as they are, and for customers' keys in base64, which costs next to
nothing; other headers that were sent, such as our own address, are no secret there.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from tollhouse.kernel.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHORTEST: Final = 8
"""Characters of what is hidden in errors: a shorter header is a word, `eu` say."""
_SHORTEST_IN_REPLIES: Final = 16
_LARGEST_ERROR: Final = 65_536
"""Bytes of an error that comes under a success status, or in a stream."""
_PUBLIC: Final = frozenset({"anthropic-version"})
_ERROR: Final = re.compile(rb'"error"\s{0,9}:\s{0,9}(?!null|\s)')
_CREDENTIAL: Final = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


class Credentials:
    """Those of one server."""

    def __init__(self, headers: Iterable[tuple[str, str]], own_key: str = "") -> None:
        """Take the headers, and the customer's key that one of them shows.

        Other keys of fewer characters than `_SHORTEST_IN_REPLIES` are left in replies.
        """
        found = [(name, part) for name, value in headers for part in _parts(name, value)]
        keys = {part for name, part in found if _CREDENTIAL.search(name)}
        self._redactor: Final = Redactor({part for _, part in found})
        self._key_redactor: Final = Redactor(keys)
        shortest = min(len(own_key), _SHORTEST_IN_REPLIES) or _SHORTEST_IN_REPLIES
        plain = {each.encode() for each in keys if len(each) >= shortest}
        self._keys: Final = plain | set(_in_base64(own_key.encode()))

    def hidden_in_error(self, text: bytes) -> bytes:
        """Return what a server says of a failure, with asterisks in place of credentials."""
        return self._redactor.mask(text)

    def hidden_in_reply(self, body: bytes) -> bytes:
        """Return a reply or an event of one; the very same bytes where no key is in it.

        One that tells an error is searched for keys in every spelling.
        """
        if len(body) <= _LARGEST_ERROR and _ERROR.search(body) is not None:
            return self._key_redactor.mask(body)
        for key in self._keys:
            if key in body:
                return self._key_redactor.mask(body)
        return body


def _in_base64(key: bytes) -> Iterator[bytes]:
    """Yield what a text in base64 holds of a key, wherever in it the key begins."""
    for start in range(3):
        whole = key[start : start + (len(key) - start) // 3 * 3]
        if whole:
            yield base64.b64encode(whole)
            yield base64.urlsafe_b64encode(whole)


def _parts(name: str, value: str) -> Iterator[str]:
    """Yield what is secret of a header's value: without its scheme, and Basic's password."""
    scheme, _, rest = value.partition(" ")
    parts = [rest or scheme]
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(rest, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            pair = ""
        parts += [pair, pair.partition(":")[2]]
    if name.lower() not in _PUBLIC:
        yield from (part for part in parts if len(part) >= _SHORTEST)
