"""A completions stream, written from events in no one's format. Pure.

    chunk* (usage | error) [DONE]

Source: https://platform.openai.com/docs/api-reference/completions/object; a chunk has the same
shape as a whole reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.base import Unreadable
from tollhouse.inference.formats.chat_completions.stream import DONE
from tollhouse.inference.formats.chat_completions.usage import render_usage
from tollhouse.inference.formats.ending import Ending
from tollhouse.inference.formats.hub.events import Event, Finished, RefusalDelta, TextDelta
from tollhouse.inference.sse import event as sse_event
from tollhouse.kernel.envelope import error_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

_encode = msgspec.json.Encoder().encode


class CompletionsWriter:
    """Fulfils `formats.hub.ports.Writer`."""

    def __init__(self, identity: ReplyIdentity) -> None:
        """Start before the first chunk."""
        self._identity = identity
        self._finished: set[int] = set()
        self._ending = Ending("completions")

    def write(self, event: Event) -> bytes:
        """Return the chunk of an event; empty for what is no text and no end.

        Raises:
            Unreadable: A choice goes on after its end.
        """
        if isinstance(event, (TextDelta, RefusalDelta)):
            choice = render_text(event.choice, event.text, None)
        elif isinstance(event, Finished):
            choice = render_text(event.choice, "", event.finish_reason)
        else:
            return b""
        if event.choice in self._finished:
            message = "a choice goes on after its end"
            raise Unreadable(message)
        if isinstance(event, Finished):
            self._finished.add(event.choice)
        return sse_event(completion(self._identity, [choice]))

    def end(self, charge: Charge) -> bytes:
        """Return the usage and `[DONE]`."""
        self._ending.come()
        usage = render_usage(charge, is_byok=False)
        return sse_event(completion(self._identity, [], usage=usage)) + sse_event(DONE)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the error and `[DONE]`."""
        self._ending.come()
        return failed(error, self._identity)


def completion(
    identity: ReplyIdentity, choices: Sequence[dict[str, object]], **more: object
) -> bytes:
    """Return a completion, or a chunk of one."""
    fields: dict[str, object] = {
        "id": identity.id,
        "object": "text_completion",
        "created": identity.created,
        "model": identity.model,
        "provider": identity.provider,
        "choices": choices,
    }
    return _encode(fields | more)


def render_text(index: int, text: str, finish_reason: str | None) -> dict[str, object]:
    """Return a choice."""
    return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": None}


def failed(error: TollhouseError, identity: ReplyIdentity) -> bytes:
    """Return the end of a stream that broke."""
    shown = error_object(error)
    shown["metadata"] = {"error_type": error.code, **error.metadata}
    chunk = completion(identity, [render_text(0, "", "error")], error=shown)
    return sse_event(chunk) + sse_event(DONE)
