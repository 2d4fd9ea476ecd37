"""Renders requests to a provider's token counting route, and parses its responses.

Source: https://docs.anthropic.com/en/api/messages-count-tokens
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.fields import fields_decoder
from tollhouse.inference.formats.messages.passthrough_bodies import provider_request
from tollhouse.inference.formats.raw_json import encoder

if TYPE_CHECKING:
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.types import Endpoint

_OF_THE_REPLY: Final = ("max_tokens", "stream")
"""Fields that do not concern the input; the counting route rejects them."""


class _Counted(msgspec.Struct):
    input_tokens: int


_counted: Final = msgspec.json.Decoder(_Counted)


def render_count(request: MessagesRequest, endpoint: Endpoint) -> bytes:
    """Return the body of a counting request."""
    fields = fields_decoder.decode(provider_request(request, endpoint))
    return encoder.encode({name: fields[name] for name in fields if name not in _OF_THE_REPLY})


def parse_count(body: bytes) -> int:
    """Return the number of input tokens that a provider counted.

    Raises:
        MalformedResponse: The body is not a token count.
    """
    try:
        tokens = _counted.decode(body).input_tokens
    except (msgspec.DecodeError, RecursionError):
        tokens = -1
    if tokens < 0:
        message = "the reply is no count of tokens"
        raise MalformedResponse(message)
    return tokens
