"""Passes embeddings through, with the vectors in the requested encoding.

Source: https://platform.openai.com/docs/api-reference/embeddings; base64 encodes little-endian
32-bit floats; OpenAI's own libraries request it.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse, without_content
from tollhouse.inference.formats.chat_completions.errors import parse_error_event
from tollhouse.inference.formats.chat_completions.usage import parse_usage
from tollhouse.inference.formats.costs import render_costs
from tollhouse.inference.formats.fields import GATEWAY_FIELDS, Fields, fields_decoder
from tollhouse.inference.formats.raw_json import NULL, encoder, raw, replace_invalid_utf8
from tollhouse.inference.formats.tokens import estimate_tokens
from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import Bug

if TYPE_CHECKING:
    from collections.abc import Collection

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.embeddings.request import EmbeddingsRequest, Encoding
    from tollhouse.inference.types import Endpoint, ReplyIdentity

_data = msgspec.json.Decoder(list[Fields])
_floats = msgspec.json.Decoder(list[float])
_text = msgspec.json.Decoder(str)
_id = msgspec.json.Decoder(str | None)


@dataclass(slots=True)
class EmbeddingsResponse:
    """A provider's complete response."""

    fields: Fields
    data: list[Fields]
    reported: Usage | None
    seen: Usage
    upstream_id: str | None
    finish_reason: str | None = "stop"
    """Always set: a response without a finish reason counts as failed."""
    native_finish_reason: str | None = None

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        usage = charge.usage
        fields: dict[str, object] = {
            **self.fields,
            "id": identity.id,
            "object": "list",
            "model": identity.model,
            "provider": identity.provider,
            "data": self.data,
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "total_tokens": usage.total_tokens,
                **render_costs(charge, is_byok=False),
            },
        }
        return encoder.encode(fields)


class EmbeddingsPassthroughAdapter:
    """Implements `formats.adapter.FormatAdapter`."""

    dialect = Dialect.EMBEDDINGS
    query = ""
    headers = ()

    def __init__(self, request: EmbeddingsRequest) -> None:
        self._request = request

    def without_content(self, *, parsed: bool = False) -> EmbeddingsPassthroughAdapter:
        """Return a copy without the conversation's content."""
        del parsed
        return EmbeddingsPassthroughAdapter(without_content(self._request))

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        return self._request.fields.keys() & endpoint.profile.refuses

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name."""
        given = self._request.fields.items()
        fields = {name: value for name, value in given if name not in GATEWAY_FIELDS}
        return encoder.encode(fields | {"model": raw(endpoint.model)})

    def parse_response(self, body: bytes) -> EmbeddingsResponse:
        """Parse a provider's complete response.

        Raises:
            MalformedResponse: The body is not a list of embeddings.
            ErrorEvent: The body is the provider's error, sent with a success status.
        """
        try:
            fields = fields_decoder.decode(replace_invalid_utf8(body))
            if fields.get("error", NULL) != NULL:
                raise parse_error_event(fields["error"])
            given = enumerate(_data.decode(fields["data"]))
            data = [_vector(each, index, self._request.encoding) for index, each in given]
            upstream_id = _id.decode(fields.get("id", NULL))
        except (msgspec.DecodeError, RecursionError, KeyError, ValueError):
            message = "the reply is no list of embeddings"
            raise MalformedResponse(message) from None
        reported = parse_usage(fields.get("usage"), with_output=False)
        seen = reported or Usage(input_tokens=estimate_tokens(self._request.size))
        return EmbeddingsResponse(fields, data, reported, seen, upstream_id)

    def open_stream(self, identity: ReplyIdentity) -> NoReturn:
        """Embeddings are not streamed."""
        del identity
        message = "embeddings are not streamed"
        raise Bug(message)


def _vector(item: Fields, index: int, encoding: Encoding) -> Fields:
    """Return an item with its vector in the encoding that the client requested."""
    vector = item["embedding"]
    is_text = memoryview(vector)[0] == ord('"')
    if is_text and encoding == "float":
        vector = raw(_unpacked(_text.decode(vector)))
    elif not is_text and encoding == "base64":
        vector = raw(_packed(_floats.decode(vector)))
    return {"object": raw("embedding"), "index": raw(index), **item, "embedding": vector}


def _unpacked(text: str) -> list[float]:
    return _little_endian(array("f", b64decode(text, validate=True))).tolist()


def _packed(numbers: list[float]) -> str:
    return b64encode(_little_endian(array("f", numbers)).tobytes()).decode()


def _little_endian(floats: array[float]) -> array[float]:
    if sys.byteorder == "big":
        floats.byteswap()
    return floats
