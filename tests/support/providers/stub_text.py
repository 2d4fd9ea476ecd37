"""Output of the stubs in every dialect: words, schema examples and signatures.

A token is a word (a run of characters without white space), so that tests can count tokens.
A signature stands for a provider's signature of reasoning; it is derived from a hash.
"""

import hashlib
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable
from typing import Any, Final

JsonObject = dict[str, Any]


class Refused(Exception):
    """A stub refuses a request; how that looks depends on the provider."""

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.param, self.status = message, code, param, status


def require(holds: object, message: str, **more: Any) -> None:
    """Refuse a request unless something holds of it."""
    if not holds:
        raise Refused(message, **more)


CHUNKS: Final = 50
PIECES: Final = ("tollhouse-benchmark ",) * CHUNKS
THOUGHT: Final = "Let me think about it."
REFUSAL: Final = "I cannot help with that."

_PIECE: Final = re.compile(r"\s*\S+(?:\s+$)?")
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


# -------------------------------------------------------------------------------------- words


def pieces(text: str) -> list[str]:
    """Split a text into pieces of one word each, white space kept."""
    return _PIECE.findall(text)


def words(text: str) -> int:
    return len(text.split())


def before_stop_sequence(text: str, stops: Iterable[str]) -> tuple[str, str | None]:
    """Return the text before the first stop sequence in it, and that sequence."""
    found = [(text.index(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return text, None
    at, stop = min(found)
    return text[:at], stop


# -------------------------------------------------------------------------------- attachments


class Attachment(str):
    """The text that acknowledges an image in an echo, e.g. `[image/png 67 bytes]`."""

    __slots__ = ()


def join_parts(parts: Iterable[str]) -> str:
    """Join parts: text without separator, attachments separated by spaces."""
    listed = list(parts)
    if not any(isinstance(part, Attachment) for part in listed):
        return "".join(listed)
    return "".join(f" {p} " if isinstance(p, Attachment) else p for p in listed).strip()


def attached(media_type: str, data: str) -> Attachment:
    """Return the acknowledgement of base64 data."""
    try:
        return Attachment(f"[{media_type} {len(b64decode(data, validate=True))} bytes]")
    except NotBase64:
        raise Refused("Invalid base64 data.", code="invalid_value") from None


def attached_from_url(url: str) -> Attachment:
    """Return the acknowledgement of the data in a data URL, or of any other URL."""
    packed = _DATA_URL.fullmatch(url)
    return attached(packed[1], packed[2]) if packed else Attachment(f"[image {url}]")


# -------------------------------------------------------------------------------------- signatures


def signed(kind: str, text: str) -> str:
    """Return the signature of a text, e.g. `sig-5891b5b5`."""
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def token(kind: str, text: str) -> str:
    """Return a self-validating token: the hash of a text and the signature of that hash."""
    content = signed("", text).removeprefix("-")
    return f"{kind}-{content}-{signed('', content).removeprefix('-')}"


def is_token(kind: str, value: object) -> bool:
    if not isinstance(value, str) or value.count("-") != 2:
        return False
    name, content, signature = value.split("-")
    return name == kind and signature == signed("", content).removeprefix("-")


# ------------------------------------------------------------------------------------ schemas


def example(schema: JsonObject, name: str = "value") -> object:
    """Return a value that a JSON schema allows: its required properties, or all if none is.

    A string has the name of its property as its value.
    """
    if schema.get("type") == "object":
        return _object(schema, schema.get("required") or list(schema.get("properties") or ()))
    return {"integer": 1, "number": 1.5, "boolean": True}.get(str(schema.get("type")), name)


def arguments(schema: JsonObject) -> JsonObject:
    return _object(schema, list(schema.get("properties") or ()))


def _object(schema: JsonObject, names: list[str]) -> JsonObject:
    properties: JsonObject = schema.get("properties") or {}
    return {name: example(properties.get(name) or {}, name) for name in names}
