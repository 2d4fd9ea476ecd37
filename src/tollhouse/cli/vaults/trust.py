"""Which hosts and values of secrets deserve a second look. Pure.

Binding is trust in whoever answers at a host. Where anybody can put content, read what is sent, or
have a request sent on, that is everybody. The list is short and knows the common ones alone.
"""

from __future__ import annotations

from collections import Counter
from math import log2
from typing import Final

from tollhouse.kernel.redaction import SHORTEST

_FEWEST_BITS: Final = 40
_CONTENT: Final = "anybody can put content there"
_READ: Final = "it shows what is sent to it to whoever made the address"
_TUNNEL: Final = "it leads to any machine that somebody connects"
_REDIRECT: Final = "it sends requests on to other hosts"
_STORE: Final = "amazonaws.com"

_SUFFIXES: Final = {
    _CONTENT: (
        *("github.io", "githubusercontent.com", "gitlab.io", "pastebin.com"),
        *("storage.googleapis.com", "blob.core.windows.net", "r2.dev", "pages.dev"),
        *("workers.dev", "vercel.app", "netlify.app", "web.app", "herokuapp.com"),
    ),
    _READ: ("webhook.site", "requestbin.com", "requestbin.net", "pipedream.net", "beeceptor.com"),
    _TUNNEL: ("ngrok.io", "ngrok.app", "ngrok-free.app", "trycloudflare.com", "loca.lt"),
    _REDIRECT: ("bit.ly", "t.co", "tinyurl.com"),
}


def doubt_about(host: str) -> str | None:
    """Return why a host is no one's to trust alone; None where the list knows nothing."""
    name = host.lower().removesuffix(".")
    if _is_bucket(name):
        return _CONTENT
    for reason, suffixes in _SUFFIXES.items():
        if any(name == suffix or name.endswith(f".{suffix}") for suffix in suffixes):
            return reason
    return None


def doubt_about_value(value: str) -> str | None:
    """Return why a value is not well protected; None where nothing speaks against it."""
    if len(value.encode()) < SHORTEST:
        return f"with fewer than {SHORTEST} bytes it is not taken out of what hosts answer"
    counts = Counter(value).values()
    bits = sum(count * log2(len(value) / count) for count in counts)
    if bits < _FEWEST_BITS:
        return "it can be guessed, and where its letters stand by chance they are hidden as well"
    return None


def _is_bucket(name: str) -> bool:
    """Tell whether this is `s3.amazonaws.com`, a bucket below it, or one of a region."""
    if not name.endswith(f".{_STORE}"):
        return False
    labels = name.removesuffix(f".{_STORE}").split(".")
    return any(label == "s3" or label.startswith("s3-") for label in labels)
