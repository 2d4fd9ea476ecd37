"""The client side of the responses format."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.responses.canonical_request import parse_canonical_request
from tollhouse.inference.formats.responses.output_renderer import OutputOptions
from tollhouse.inference.formats.responses.response_renderer import render_response
from tollhouse.inference.formats.responses.stream_encoder import ResponsesStreamEncoder

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.request import CanonicalRequest
    from tollhouse.inference.formats.canonical.response import CanonicalResponse
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity


class ResponsesClientFormat:
    """Implements `formats.canonical.ports.ClientFormat`."""

    def __init__(self, request: ResponsesRequest) -> None:
        self._request = request

    @cached_property
    def _prompt(self) -> CanonicalRequest:
        return parse_canonical_request(self._request)

    @property
    def _options(self) -> OutputOptions:
        thinking = self._prompt.thinking
        return OutputOptions(
            frozenset(tool.name for tool in self._prompt.tools if tool.freeform),
            summarizes=thinking is not None and thinking.summary not in {None, "none"},
        )

    def parse_request(self) -> CanonicalRequest:
        """Return the request in canonical form.

        Raises:
            Invalid: A field is of the wrong type or missing; the message begins with its path.
        """
        return self._prompt

    def without_content(self, prompt: CanonicalRequest | None) -> ResponsesClientFormat:
        """Return a copy without the conversation's content."""
        copy = ResponsesClientFormat(without_content(self._request))
        if prompt is not None:
            copy._prompt = prompt
        return copy

    def render_response(
        self, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
    ) -> bytes:
        """Return the body of a complete response."""
        return render_response(reply, self._request, identity, charge, self._options)

    def stream_encoder(self, identity: ReplyIdentity) -> ResponsesStreamEncoder:
        """Return the encoder of one stream."""
        return ResponsesStreamEncoder(self._request, identity, self._options)
