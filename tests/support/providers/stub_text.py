"""Output of the stubs in every dialect: words, schema examples and signatures.

A token is a word (a run of characters without white space), so that tests can count tokens.
A signature stands for a provider's signature of reasoning; it is derived from a hash.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

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
HUGE_BYTES: Final = 1_048_576
FIXED_PIECES: Final = ("tollhouse-benchmark ",) * CHUNKS
"""1 KB in 50 pieces."""
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
    """The text that acknowledges an image or a file in an echo, e.g. `[image/png 67 bytes]`."""

    __slots__ = ()


def join_parts(parts: Iterable[str]) -> str:
    """Join parts: text without separator, attachments separated by spaces."""
    listed = list(parts)
    if not any(isinstance(part, Attachment) for part in listed):
        return "".join(listed)
    return "".join(f" {p} " if isinstance(p, Attachment) else p for p in listed).strip()


def attachment_from_base64(kind: str, media_type: str, data: str) -> Attachment:
    """Return the acknowledgement of base64 data.

    Raises:
        ValueError: The data is not base64.
    """
    try:
        size = len(b64decode(data, validate=True))
    except NotBase64:
        raise ValueError("invalid base64 data") from None
    prefix = "" if media_type.startswith(f"{kind}/") else f"{kind} "
    return Attachment(f"[{prefix}{media_type} {size} bytes]")


def attachment_from_url(kind: str, url: str) -> Attachment:
    """Return the acknowledgement of a URL; of a data URL, that of its data.

    Raises:
        ValueError: The data of a data URL is not base64.
    """
    if packed := _DATA_URL.fullmatch(url):
        return attachment_from_base64(kind, packed[1], packed[2])
    return Attachment(f"[{kind} {url}]")


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


def example(schema: JsonObject, name: str = "value", root: JsonObject | None = None) -> object:
    """Return a value that a JSON schema allows: its required properties, or all if none is.

    A string has the name of its property as its value.

    Source: JSON Schema 2020-12, Core, sections 8.2.3 and 10; Validation, section 6.
    """
    root = root if root is not None else schema
    chosen = _chosen(schema, root)
    if chosen is not None:
        return example(chosen, name, root)
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type")
    kind = cast("list[Any]", kind)[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        required: list[str] = schema.get("required") or list(schema.get("properties") or ())
        return _object(schema, required, root)
    if kind == "array":
        return [example(schema.get("items") or {}, name, root)]
    return {"integer": 1, "number": 1.5, "boolean": True, "null": None}.get(str(kind), name)


def _chosen(schema: JsonObject, root: JsonObject) -> JsonObject | None:
    """Return the schema that this one refers to, or its first alternative."""
    if "$ref" in schema:
        return _resolved(str(schema["$ref"]), root)
    choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    return choices[0] if choices else None


def arguments(schema: JsonObject) -> JsonObject:
    return _object(schema, list(schema.get("properties") or ()), schema)


def _object(schema: JsonObject, names: list[str], root: JsonObject) -> JsonObject:
    properties: JsonObject = schema.get("properties") or {}
    return {name: example(properties.get(name) or {}, name, root) for name in names}


def _resolved(reference: str, root: JsonObject) -> JsonObject:
    found: Any = root
    try:
        for step in reference.removeprefix("#").strip("/").split("/"):
            found = found[step] if step else found
    except (KeyError, TypeError):
        raise ValueError(f"{reference} leads nowhere") from None
    return found
