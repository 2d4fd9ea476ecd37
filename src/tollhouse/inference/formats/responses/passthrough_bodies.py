"""Complete responses that are passed through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.canonical.blocks import (
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.fields import Fields, fields_decoder
from tollhouse.inference.formats.raw_json import encoder, replace_invalid_utf8
from tollhouse.inference.formats.responses.response_object import blank_response
from tollhouse.inference.formats.responses.response_parser import decode_response, parse_response
from tollhouse.inference.formats.responses.usage import render_usage
from tollhouse.inference.formats.tokens import estimate_tokens

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.blocks import Block
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity


@dataclass(slots=True)
class ResponsesResponse:
    """A provider's complete response, decoded as far as the gateway needs."""

    request: ResponsesRequest
    fields: Fields
    reported: Usage | None
    seen: Usage
    finish_reason: str | None
    native_finish_reason: str | None
    upstream_id: str | None

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        ours = {"id": identity.id, "object": "response", "model": identity.model}
        fields = {**blank_response(self.request, identity), **self.fields, **ours}
        return encoder.encode({**fields, "usage": render_usage(charge)})


def parse_responses_response(body: bytes, request: ResponsesRequest) -> ResponsesResponse:
    """Parse a provider's complete response.

    Raises:
        MalformedResponse: The body is not a response.
        ErrorEvent: The body is the provider's error, sent with a success status.
    """
    reply = parse_response(decode_response(body))
    choice = reply.choices[0]
    output_size = sum(map(_output_size, choice.blocks))
    estimate = Usage(
        input_tokens=estimate_tokens(request.size), output_tokens=estimate_tokens(output_size)
    )
    return ResponsesResponse(
        request=request,
        fields=fields_decoder.decode(replace_invalid_utf8(body)),
        reported=reply.usage,
        seen=reply.usage or estimate,
        finish_reason=choice.finish_reason,
        native_finish_reason=choice.native_finish_reason,
        upstream_id=reply.upstream_id,
    )


def _output_size(block: Block) -> int:
    """Return the bytes of output in a block."""
    if isinstance(block, (TextBlock, RefusalBlock, ReasoningBlock)):
        return len(block.text.encode())
    return len(block.arguments.encode()) if isinstance(block, ToolCall) else 0
