"""Passes responses requests through to providers of the responses dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.canonical.reasoning import unpack
from tollhouse.inference.formats.fields import GATEWAY_FIELDS, Fields, fields_decoder
from tollhouse.inference.formats.raw_json import encoder, raw
from tollhouse.inference.formats.responses.input_renderer import reasoning_input
from tollhouse.inference.formats.responses.passthrough_bodies import parse_responses_response
from tollhouse.inference.formats.responses.stream import ResponsesStream
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Collection

    from tollhouse.inference.formats.responses.passthrough_bodies import ResponsesResponse
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import Endpoint, ReplyIdentity


class _Reasoning(msgspec.Struct):
    type: str | None = None
    encrypted_content: str | None = None


EXTENSIONS: Final = frozenset(
    {
        "cache_control",
        "frequency_penalty",
        "image_config",
        "min_p",
        "modalities",
        "presence_penalty",
        "repetition_penalty",
        "stop",
        "top_a",
        "top_k",
    }
)
"""The public gateway's additions, which OpenAI rejects."""
_OF_REASONING: Final = ("enabled", "exclude", "max_tokens")
"""The public gateway's additions to `reasoning`."""
_MARK: Final = b'"encrypted_content"'
_FALSE: Final = Raw(b"false")
_items = msgspec.json.Decoder(list[Raw] | str)
_reasoning = msgspec.json.Decoder(_Reasoning)


class ResponsesPassthroughAdapter:
    """Implements `formats.adapter.FormatAdapter`."""

    dialect = Dialect.RESPONSES
    query = ""
    headers = ()

    def __init__(self, request: ResponsesRequest) -> None:
        self._request = request

    def without_content(self, *, parsed: bool = False) -> ResponsesPassthroughAdapter:
        """Return a copy without the conversation's content."""
        del parsed
        return ResponsesPassthroughAdapter(without_content(self._request))

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        profile = endpoint.profile
        extensions = frozenset[str]() if profile.takes_extensions else EXTENSIONS
        return self._request.fields.keys() & (profile.refuses | extensions)

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name.

        Fields for the gateway, fields that the provider rejects, and reasoning of other providers'
        models are left out.
        """
        profile = endpoint.profile
        ours = GATEWAY_FIELDS if profile.takes_extensions else GATEWAY_FIELDS | EXTENSIONS
        left_out = ours | profile.refuses
        given = self._request.fields.items()
        fields: Fields = {name: value for name, value in given if name not in left_out}
        fields["model"] = raw(endpoint.model)
        fields["input"] = _own_history(fields["input"])
        if "reasoning" in fields and not profile.takes_extensions:
            fields["reasoning"] = _own_reasoning(fields["reasoning"])
        if "store" not in endpoint.profile.refuses:
            fields["store"] = _FALSE
        return encoder.encode(fields)

    def parse_response(self, body: bytes) -> ResponsesResponse:
        """Parse a provider's complete response."""
        return parse_responses_response(body, self._request)

    def open_stream(self, identity: ReplyIdentity) -> ResponsesStream:
        """Return the adapter of one streamed response."""
        return ResponsesStream(identity, self._request)


def _own_history(given: Raw) -> Raw:
    """Return an input without packed reasoning of other providers.

    OpenAI's own reasoning is sent back unchanged.
    """
    if _MARK not in bytes(given):
        return given
    try:
        items = _items.decode(given)
    except (msgspec.DecodeError, RecursionError):
        # Passed on unchanged: the provider reports the error.
        return given
    if isinstance(items, str):
        return given
    items = [_own_item(item) for item in items]
    return raw([item for item in items if item is not None])


def _own_reasoning(given: Raw) -> Raw:
    """Return `reasoning` without the public gateway's additions."""
    try:
        fields = fields_decoder.decode(given)
    except (msgspec.DecodeError, RecursionError):
        # Passed on unchanged: the provider reports the error.
        return given
    return raw({name: value for name, value in fields.items() if name not in _OF_REASONING})


def _own_item(item: Raw) -> Raw | None:
    if _MARK not in bytes(item):
        return item
    try:
        reasoning = _reasoning.decode(item)
    except (msgspec.DecodeError, RecursionError):
        # Passed on unchanged: the provider reports the error.
        return item
    packed = unpack(reasoning.encrypted_content or "")
    if reasoning.type != "reasoning" or packed is None:
        return item
    own = reasoning_input(packed)
    return None if own is None else raw(own)
