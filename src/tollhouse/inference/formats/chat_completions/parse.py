"""From the bytes of a chat request to what the gateway understands of it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tollhouse.inference.formats.chat_completions.request import ChatRequest
from tollhouse.inference.formats.chat_completions.wire import Fields, fields_decoder
from tollhouse.kernel.errors import Invalid

T = TypeVar("T")
_string = msgspec.json.Decoder(str)
_flag = msgspec.json.Decoder(bool | None)
_list = msgspec.json.Decoder(list[msgspec.Raw])


def parse_request(body: bytes) -> ChatRequest:
    """Return a chat request.

    Args:
        body: The request's body as it came.

    Raises:
        Invalid: It is not JSON (the message names the position), no object, or a field that the
            gateway needs is missing or of another type (the message names the field).
    """
    fields = _object(body)
    model = _model(fields)
    _check_messages(fields)
    stream = _decode(_flag, fields, "stream", "true or false") if "stream" in fields else False
    return ChatRequest(model=model, stream=bool(stream), fields=fields, size=len(body))


def _object(body: bytes) -> Fields:
    try:
        if not body.isascii():
            # The decoder passes over what stays raw without looking at its characters.
            body.decode()
        return fields_decoder.decode(body)
    except msgspec.ValidationError:
        message = "The body must be a JSON object."
        raise Invalid(message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"The body is not valid JSON: {_position(error, body)}."
        raise Invalid(message) from None


def _position(error: Exception, body: bytes) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    # msgspec's own text shows nothing of the body, and names the position unless that is the end.
    text = str(error).removeprefix("JSON is malformed: ")
    return text if "(byte " in text else f"it ends too early (byte {len(body)})"


def _model(fields: Fields) -> str:
    if "model" not in fields:
        message = "model: this field is required."
        raise Invalid(message)
    model = _decode(_string, fields, "model", "a string")
    if not model:
        message = "model: must not be empty."
        raise Invalid(message)
    return model


def _check_messages(fields: Fields) -> None:
    if "messages" not in fields:
        message = "messages: this field is required."
        raise Invalid(message)
    if not _decode(_list, fields, "messages", "a list of messages"):
        message = "messages: at least one message is required."
        raise Invalid(message)


def _decode(decoder: msgspec.json.Decoder[T], fields: Fields, name: str, wanted: str) -> T:
    try:
        return decoder.decode(fields[name])
    except (msgspec.DecodeError, RecursionError):
        message = f"{name}: must be {wanted}."
        raise Invalid(message) from None
