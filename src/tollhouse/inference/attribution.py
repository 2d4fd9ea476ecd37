"""What a request says of who asks: its headers, and `user`, `session_id`, `trace`, `metadata`.

It is stored with the generation. The body's session goes before the header's.

Source: the public gateway's reference of the chat request, for the names and their limits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Optional, TypeVar

import msgspec
from msgspec import Meta, Raw

from tollhouse.accounting.types import Attribution
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
_NAMES: Final = frozenset({"user", "session_id", "trace", "metadata"})
_LARGEST_TRACE: Final = 16_384
_LONGEST_USER: Final = 512
_LONGEST_HEADER: Final = 512

_text = msgspec.json.Decoder(str | None)
_Session = Annotated[str, Meta(max_length=256)]
_session: Final[msgspec.json.Decoder[str | None]] = msgspec.json.Decoder(
    Optional[_Session]  # noqa: UP045 - `|` knows no annotated type
)
_object = msgspec.json.Decoder(dict[str, Any])
_Key = Annotated[str, Meta(max_length=64)]
_Value = Annotated[str, Meta(max_length=512)]
_Map = Annotated[dict[_Key, _Value], Meta(max_length=16)]
_metadata: Final[msgspec.json.Decoder[dict[str, str] | None]] = msgspec.json.Decoder(
    Optional[_Map]  # noqa: UP045
)


class _Anthropics(msgspec.Struct):
    user_id: str | None = None


_anthropics = msgspec.json.Decoder(_Anthropics | None)


def attribution(headers: Mapping[bytes, bytes]) -> Attribution:
    """Return what a request's headers say of the program that sent it."""
    return Attribution(
        http_referer=_header(headers, b"http-referer") or _header(headers, b"referer"),
        app_title=_header(headers, b"x-openrouter-title") or _header(headers, b"x-title"),
        user_agent=_header(headers, b"user-agent"),
        session_id=_header(headers, b"x-session-id"),
        categories=_header(headers, b"x-openrouter-categories"),
    )


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    if value is None:
        return None
    # A NUL is no text to PostgreSQL.
    return value[:_LONGEST_HEADER].decode("utf-8", "replace").replace("\0", "")


def attribute(given: Attribution, fields: Mapping[str, Raw], *, anthropic: bool) -> Attribution:
    """Return an attribution with what the body says.

    Args:
        given: What the headers say.
        fields: The request's top-level fields.
        anthropic: Whether `metadata` is Anthropic's, which has a `user_id` and nothing of ours.

    Raises:
        Invalid: A field is of the wrong type or too long; the message begins with its name.
    """
    if _NAMES.isdisjoint(fields):
        return given
    user = _read(_text, fields, "user", "a string")
    metadata: Raw | None = None
    if anthropic:
        user = user or _user_id(fields)
    elif _read(_metadata, fields, "metadata", "at most 16 texts of 512 characters"):
        metadata = fields["metadata"]
    session = _read(_session, fields, "session_id", "a string of at most 256 characters")
    return replace(
        given,
        external_user=None if user is None else user[:_LONGEST_USER],
        session_id=session or given.session_id,
        trace=_trace(fields),
        metadata=None if metadata is None else bytes(metadata).decode(),
    )


def _read(
    decoder: msgspec.json.Decoder[T], fields: Mapping[str, Raw], name: str, wanted: str
) -> T | None:
    if name not in fields:
        return None
    try:
        return decoder.decode(fields[name])
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(f"{name}: must be {wanted}.") from None


def _user_id(fields: Mapping[str, Raw]) -> str | None:
    said = _read(_anthropics, fields, "metadata", "an object with a user_id")
    return None if said is None else said.user_id


def _trace(fields: Mapping[str, Raw]) -> str | None:
    """Return the trace as JSON that everybody can read again: no huge numbers, no depths."""
    if fields.get("trace", NULL) == NULL:
        return None
    try:
        trace = msgspec.json.encode(_object.decode(fields["trace"]))
    except (msgspec.DecodeError, RecursionError, OverflowError, ValueError):
        message = "trace: must be an object."
        raise Invalid(message) from None
    if len(trace) > _LARGEST_TRACE:
        raise Invalid(f"trace: must be at most {_LARGEST_TRACE} bytes.")
    return trace.decode()
