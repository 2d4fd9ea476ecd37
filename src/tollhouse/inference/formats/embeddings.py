"""Passes embeddings through, with the vectors in the requested encoding. Pure.

Source: https://platform.openai.com/docs/api-reference/embeddings and the public gateway's
additions; base64 encodes little-endian 32-bit floats; OpenAI's own libraries request it.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn

import msgspec

from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    ClientRequest,
    MalformedResponse,
    PassthroughAdapter,
)
from tollhouse.inference.formats.chat import decode_fields
from tollhouse.inference.formats.usage import find_counts, usage_of
from tollhouse.inference.formats.wire import (
    GATEWAY_FIELDS,
    NULL,
    Fields,
    encoder,
    estimate_usage,
    for_provider,
    raw,
    read_field,
    read_model,
    read_object,
    read_optional,
    render_costs,
    text_decoder,
)
from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
from tollhouse.kernel.errors import Bug, Invalid

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge


Encoding = Literal["float", "base64"]
_input: Final[msgspec.json.Decoder[str | list[msgspec.Raw]]] = msgspec.json.Decoder(
    str | list[msgspec.Raw]
)
_encoding = msgspec.json.Decoder(Encoding | None)
_MOST_INPUTS: Final = 2_048
"""Source: https://platform.openai.com/docs/api-reference/embeddings/create, `input`."""


class EmbeddingsRequest(ClientRequest, frozen=True):
    """A parsed request of the format."""

    api_type = "embeddings"
    content_field = "input"

    encoding: Encoding = "float"
    """The encoding of the vectors that the client requested."""


def parse_request(body: bytes) -> EmbeddingsRequest:
    """Parse an embeddings request; raises `Invalid`, whose message names the bad field.

    Source: https://platform.openai.com/docs/api-reference/embeddings/create
    """
    fields = read_object(body)
    model = read_model(fields)
    wanted = "a text, a list of texts or lists of tokens"
    given: str | list[msgspec.Raw] = read_field(_input, fields, "input", wanted, filled=True)
    if isinstance(given, list) and len(given) > _MOST_INPUTS and not _is_token(given[0]):
        raise Invalid(f"input: must be at most {_MOST_INPUTS} texts or lists of tokens.")
    encoding = read_optional(_encoding, fields, "encoding_format", "float or base64")
    return EmbeddingsRequest.of(body, fields, model, encoding or "float", stream=False)


def _is_token(value: msgspec.Raw) -> bool:
    """Tell whether the first of a list is a number: then the whole list is one input."""
    return memoryview(value)[0] not in b'"[{'


# Pass-through

_data = msgspec.json.Decoder(list[Fields])
_floats = msgspec.json.Decoder(list[float])
_text = msgspec.json.Decoder(str)
_EMBEDDING = msgspec.Raw(b'"embedding"')


@dataclass(slots=True, repr=False)
class EmbeddingsResponse(AdaptedResponse):
    """A provider's complete response."""

    fields: Fields
    data: list[Fields]

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
                **render_costs(charge),
            },
        }
        return encoder.encode(fields)


class EmbeddingsPassthroughAdapter(PassthroughAdapter[EmbeddingsRequest]):
    """Passes requests through to providers of the dialect."""

    dialect = Dialect.EMBEDDINGS

    def render_request(self, body: bytes, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name."""
        rejected = GATEWAY_FIELDS | endpoint.profile.refuses
        return encoder.encode(for_provider(self._request.whole(body), rejected, endpoint.model))

    def parse_response(self, body: bytes) -> EmbeddingsResponse:
        """Parse a provider's complete response."""
        try:
            fields = decode_fields(body)
            given = enumerate(_data.decode(fields["data"]))
            data = [_vector(each, index, self._request.encoding) for index, each in given]
            upstream_id = text_decoder.decode(fields.get("id", NULL))
        except (msgspec.DecodeError, RecursionError, KeyError, ValueError):
            raise MalformedResponse("the reply is no list of embeddings") from None
        reported = usage_of(find_counts(fields), with_output=False)
        return EmbeddingsResponse(
            reported=reported,
            seen=reported or estimate_usage(self._request.size, 0),
            finish_reason="stop",
            native_finish_reason=None,
            upstream_id=upstream_id,
            fields=fields,
            data=data,
        )

    def open_stream(self, identity: ReplyIdentity) -> NoReturn:
        """Embeddings are not streamed."""
        del identity
        raise Bug("embeddings are not streamed")


def _vector(item: Fields, index: int, encoding: Encoding) -> Fields:
    """Return an item with its vector in the encoding that the client requested."""
    vector = item["embedding"]
    is_text = memoryview(vector)[0] == ord('"')
    if is_text and encoding == "float":
        vector = raw(_unpacked(_text.decode(vector)))
    elif not is_text and encoding == "base64":
        vector = raw(_packed(_floats.decode(vector)))
    return {"object": _EMBEDDING, "index": raw(index), **item, "embedding": vector}


def _unpacked(text: str) -> list[float]:
    return _little_endian(array("f", b64decode(text, validate=True))).tolist()


def _packed(numbers: list[float]) -> str:
    return b64encode(_little_endian(array("f", numbers)).tobytes()).decode()


def _little_endian(floats: array[float]) -> array[float]:
    if sys.byteorder == "big":
        floats.byteswap()
    return floats
