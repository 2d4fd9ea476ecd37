"""A whole response, passed through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.fields import Fields, fields_decoder
from tollhouse.inference.formats.hub.parts import Reasoning, Refusal, Text, ToolCall
from tollhouse.inference.formats.responses.read import read_reply, read_response
from tollhouse.inference.formats.responses.response import blank_response
from tollhouse.inference.formats.responses.usage import render_usage
from tollhouse.inference.formats.tokens import estimated_tokens
from tollhouse.inference.formats.wire import encoder, well_formed

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.hub.parts import Block
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity


@dataclass(slots=True)
class WholeResponse:
    """A provider's whole response, read as far as the gateway must."""

    request: ResponsesRequest
    fields: Fields
    reported: Usage | None
    seen: Usage
    finish_reason: str | None
    native_finish_reason: str | None
    upstream_id: str | None

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields, with ours in place of its own."""
        ours = {"id": identity.id, "object": "response", "model": identity.model}
        fields = {**blank_response(self.request, identity), **self.fields, **ours}
        return encoder.encode({**fields, "usage": render_usage(charge)})


def parse_whole(body: bytes, request: ResponsesRequest) -> WholeResponse:
    """Return a provider's whole response.

    Raises:
        Unreadable: It is none.
        ErrorEvent: It is the provider's error, under a success status.
    """
    reply = read_reply(read_response(body))
    choice = reply.choices[0]
    said = sum(map(_said, choice.blocks))
    estimate = Usage(
        input_tokens=estimated_tokens(request.size), output_tokens=estimated_tokens(said)
    )
    return WholeResponse(
        request=request,
        fields=fields_decoder.decode(well_formed(body)),
        reported=reply.usage,
        seen=reply.usage or estimate,
        finish_reason=choice.finish_reason,
        native_finish_reason=choice.native_finish_reason,
        upstream_id=reply.upstream_id,
    )


def _said(block: Block) -> int:
    """Return how many bytes a block adds to what the model said."""
    if isinstance(block, (Text, Refusal, Reasoning)):
        return len(block.text.encode())
    return len(block.arguments.encode()) if isinstance(block, ToolCall) else 0
