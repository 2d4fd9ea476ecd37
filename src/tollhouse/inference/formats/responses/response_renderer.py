"""Renders a canonical response as a response object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.canonical.blocks import TextBlock
from tollhouse.inference.formats.raw_json import encoder
from tollhouse.inference.formats.responses.errors import failed_response
from tollhouse.inference.formats.responses.output_renderer import (
    JsonObject,
    OutputOptions,
    render_items,
)
from tollhouse.inference.formats.responses.response_object import blank_response
from tollhouse.inference.formats.responses.usage import render_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.response import CanonicalResponse, FinishReason
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity

INCOMPLETE: Final[Mapping[FinishReason, str]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""The `incomplete_details.reason` for each finish reason of an incomplete response."""


def render_response(
    reply: CanonicalResponse,
    request: ResponsesRequest,
    identity: ReplyIdentity,
    charge: Charge,
    options: OutputOptions,
) -> bytes:
    """Return the client's body, with the first choice only."""
    choice = reply.choices[0]
    items = render_items(
        choice.blocks,
        identity,
        options,
        logprobs=choice.logprobs,
        complete=choice.finish_reason not in INCOMPLETE,
    )
    blank = blank_response(request, identity)
    if reply.service_tier is not None:
        blank["service_tier"] = reply.service_tier
    text = "".join(block.text for block in choice.blocks if isinstance(block, TextBlock))
    ended = {**blank, "output": items, "output_text": text}
    return encoder.encode(finished_response(ended, choice.finish_reason, charge))


def finished_response(
    response: JsonObject, finish_reason: FinishReason, charge: Charge
) -> JsonObject:
    """Return a response object with its final status.

    Args:
        response: The response with its output.
        finish_reason: Determines the status.
        charge: Rendered as the usage.
    """
    ended: JsonObject = {**response, "usage": render_usage(charge)}
    if finish_reason == "error":
        message = "The provider ended its reply with an error."
        return failed_response(ended, "provider_unavailable", message)
    reason = INCOMPLETE.get(finish_reason)
    if reason is None:
        return {**ended, "status": "completed"}
    return {**ended, "status": "incomplete", "incomplete_details": {"reason": reason}}
