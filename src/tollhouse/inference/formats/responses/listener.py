"""The responses format for clients whose provider speaks something else."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tollhouse.inference.formats.base import without_said
from tollhouse.inference.formats.responses.output import OutputOptions
from tollhouse.inference.formats.responses.prompt import read_prompt
from tollhouse.inference.formats.responses.render import render_reply
from tollhouse.inference.formats.responses.writer import ResponsesWriter

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.hub.prompt import Prompt
    from tollhouse.inference.formats.hub.reply import Reply
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity


class ResponsesListener:
    """Fulfils `formats.hub.ports.Listener`."""

    def __init__(self, request: ResponsesRequest) -> None:
        """Take the request."""
        self._request = request

    @cached_property
    def _prompt(self) -> Prompt:
        return read_prompt(self._request)

    @property
    def _options(self) -> OutputOptions:
        thinking = self._prompt.thinking
        return OutputOptions(
            frozenset(tool.name for tool in self._prompt.tools if tool.freeform),
            summarizes=thinking is not None and thinking.summary not in {None, "none"},
        )

    def parse(self) -> Prompt:
        """Return what the request asks.

        Raises:
            Invalid: A field is of the wrong type or missing; the message begins with its path.
        """
        return self._prompt

    def told(self, prompt: Prompt | None) -> ResponsesListener:
        """Return this without what is said."""
        listener = ResponsesListener(without_said(self._request))
        if prompt is not None:
            listener._prompt = prompt
        return listener

    def render(self, reply: Reply, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return a whole reply's body."""
        return render_reply(reply, self._request, identity, charge, self._options)

    def writer(self, identity: ReplyIdentity) -> ResponsesWriter:
        """Begin to write a stream."""
        return ResponsesWriter(self._request, identity, self._options)
