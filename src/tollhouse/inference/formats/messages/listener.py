"""The messages format towards a client whose request is asked in another dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.base import without_said
from tollhouse.inference.formats.messages.prompt import parse_prompt
from tollhouse.inference.formats.messages.reply import render_reply
from tollhouse.inference.formats.messages.writer import MessagesWriter

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.hub.prompt import Prompt
    from tollhouse.inference.formats.hub.reply import Reply
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.types import ReplyIdentity


class MessagesListener:
    """Fulfils `formats.hub.ports.Listener`."""

    def __init__(self, request: MessagesRequest) -> None:
        """Take the request."""
        self._request = request

    def parse(self) -> Prompt:
        """Return what the request asks."""
        return parse_prompt(self._request)

    def told(self, prompt: Prompt | None) -> MessagesListener:
        """Return this without what is said."""
        del prompt
        return MessagesListener(without_said(self._request))

    def render(self, reply: Reply, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return a whole reply's body."""
        return render_reply(reply, identity, charge)

    def writer(self, identity: ReplyIdentity) -> MessagesWriter:
        """Begin to write a stream."""
        return MessagesWriter(identity)
