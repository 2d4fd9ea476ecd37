"""From the bytes of a chat request to what the gateway understands of it."""

from __future__ import annotations

import msgspec

from tollhouse.inference.formats.chat_completions.request import ChatRequest
from tollhouse.inference.formats.fields import read_field, read_model, read_object
from tollhouse.kernel.errors import Invalid

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
    fields = read_object(body)
    model = read_model(fields)
    if not read_field(_list, fields, "messages", "a list of messages"):
        message = "messages: at least one message is required."
        raise Invalid(message)
    stream = read_field(_flag, fields, "stream", "true or false") if "stream" in fields else False
    return ChatRequest(model=model, stream=bool(stream), fields=fields, body=body)
