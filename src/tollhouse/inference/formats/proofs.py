"""Values that only their maker can read, which a client echoes: marked with the maker's name. Pure.

    wrapped("EqQB...", "acme")       -> "th2.acme.EqQB..."      what a client gets and sends back
    unwrapped("th2.acme.EqQB...")    -> ("acme", "EqQB...")
    unwrapped("EqQB...")             -> (None, "EqQB...")       of a client's earlier times

Signatures, encrypted reasoning and thought signatures go back to the provider that sent them and to
no other, which would refuse them. The maker is a provider's slug.

Source: https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking (`signature`),
https://platform.openai.com/docs/guides/reasoning (`encrypted_content`) and
https://ai.google.dev/gemini-api/docs/thought-signatures (`extra_content.google.thought_signature`)
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PREFIX: Final = "th2."
_MARK: Final = re.compile(rb"h[12]\.(?<=th..)")
"""How packed reasoning and marked values begin: `th1.` and `th2.`, `h` being rarer than `t`."""
IN_DETAILS: Final = re.compile(rb'("(?:signature|data)"\s*:\s*")(?!")')
"""Before a value in `reasoning_details`."""
IN_RESPONSES: Final = re.compile(rb'("encrypted_content"\s*:\s*")(?!")')
IN_CALLS: Final = re.compile(rb'("thought_signature"\s*:\s*")(?!")')
"""Before a value beside a call, or beside a message's text."""
IN_LITELLM: Final = re.compile(rb'("(?:signature|thought_signatures?)"\s*:\s*(?:\[\s*)?")(?!")')
"""Before a value in a message's `provider_specific_fields`; of a list the first."""


class Proof(NamedTuple):
    """A value as its maker wrote it."""

    maker: str | None
    """None if it has no mark."""
    value: str


def wrapped(value: str, maker: str) -> str:
    """Return a value as a client gets it."""
    return f"{_PREFIX}{maker}.{value}" if value and maker else value


def unsigned(maker: str) -> str:
    """Return the mark of a text that its maker did not sign, as some servers of Messages do not."""
    return f"{_PREFIX}{maker}." if maker else ""


def unwrapped(value: str) -> Proof:
    """Return a value that a client sent back."""
    if not value.startswith(_PREFIX):
        return Proof(None, value)
    maker, _, own = value.removeprefix(_PREFIX).partition(".")
    return Proof(maker, own)


def is_marked(data: bytes) -> bool:
    """Tell whether there may be a mark in a client's JSON."""
    return _MARK.search(data) is not None


def wrap_all(data: bytes, before: re.Pattern[bytes], maker: str) -> bytes:
    """Return JSON with all values of some fields marked; in a text the fields do not count."""
    return before.sub(rb"\g<1>" + f"{_PREFIX}{maker}.".encode(), data) if maker else data


def unwrap_all(data: bytes, before: re.Pattern[bytes], provider: str) -> bytes | None:
    """Return JSON as its maker wrote it; None if another than this provider is the maker."""
    makers = set[bytes]()

    def strip(found: re.Match[bytes]) -> bytes:
        makers.add(found[2])
        return found[1]

    marked = re.compile(before.pattern + rb"th2\.([a-z0-9-]*)\.")
    data = marked.sub(strip, data)
    return None if makers - {provider.encode()} else data
