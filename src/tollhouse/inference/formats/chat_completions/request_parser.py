"""Parses a chat request, as far as the gateway interprets it."""

from __future__ import annotations

import msgspec

from tollhouse.inference.formats.chat_completions.request import ChatRequest
from tollhouse.inference.formats.fields import (
    Fields,
    read_field,
    read_flag,
    read_model,
    read_object,
)
from tollhouse.kernel.errors import Invalid


class _Reasoning(msgspec.Struct):
    effort: str | None = None
    exclude: bool | None = None


_FALSE = msgspec.Raw(b"false")
_text = msgspec.json.Decoder(str | None)
_reasoning = msgspec.json.Decoder(_Reasoning | None)
_list = msgspec.json.Decoder(list[msgspec.Raw])


def parse_request(body: bytes) -> ChatRequest:
    """Parse a chat request.

    Args:
        body: The request's body as received.

    Raises:
        Invalid: The body is not JSON (the message names the position) or not an object, or a
            required field is missing or of the wrong type (the message names the field).
    """
    fields = read_object(body)
    model = read_model(fields)
    if not read_field(_list, fields, "messages", "a list of messages"):
        message = "messages: at least one message is required."
        raise Invalid(message)
    stream = read_flag(fields, "stream")
    if "reasoning" in fields and "reasoning_effort" in fields:
        _check_efforts(fields)
    return ChatRequest(
        model=model,
        stream=stream,
        fields=fields,
        size=len(body),
        body=body,
        shows_reasoning=_shows_reasoning(fields),
    )


def _shows_reasoning(fields: Fields) -> bool:
    if fields.get("include_reasoning") == _FALSE:
        return False
    if "reasoning" not in fields:
        return True
    try:
        given = _reasoning.decode(fields["reasoning"])
    except (msgspec.DecodeError, RecursionError):
        # Passed on unchanged: the provider reports the error.
        return True
    return given is None or not given.exclude


def _check_efforts(fields: Fields) -> None:
    """Reject two efforts that differ."""
    wanted = "an object whose effort is a string"
    given = read_field(_reasoning, fields, "reasoning", wanted)
    effort = read_field(_text, fields, "reasoning_effort", "a string")
    if given is not None and given.effort is not None and effort not in {None, given.effort}:
        message = "reasoning_effort: contradicts reasoning.effort; give one of them."
        raise Invalid(message)
