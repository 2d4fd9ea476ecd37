"""Encodes canonical events as a completions stream. Pure.

    chunk* (usage | error) [DONE]

Source: https://platform.openai.com/docs/api-reference/completions/object; a chunk has the same
schema as a complete response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.events import (
    CanonicalEvent,
    ChoiceFinished,
    RefusalDelta,
    TextDelta,
)
from tollhouse.inference.formats.chat_completions import errors
from tollhouse.inference.formats.chat_completions.usage import asks_for_usage, render_usage
from tollhouse.inference.formats.chat_completions.wire import DONE
from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.inference.sse import event as sse_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.fields import Fields
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

_encode = msgspec.json.Encoder().encode


class CompletionsStreamEncoder:
    """Implements `formats.canonical.ports.StreamEncoder`."""

    def __init__(self, request: Fields, identity: ReplyIdentity) -> None:
        """Start before the first chunk.

        Args:
            request: The client's request fields, which determine the last chunk.
            identity: The response's.
        """
        self._request = request
        self._identity = identity
        self._finished: set[int] = set()
        self._stream_end = StreamEnd("completions")

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the chunk of an event; empty unless it is text or the end of a choice.

        Raises:
            MalformedResponse: A finished choice received more output.
        """
        if isinstance(event, (TextDelta, RefusalDelta)):
            choice = render_choice(event.choice, event.text, None)
        elif isinstance(event, ChoiceFinished):
            choice = render_choice(event.choice, "", event.finish_reason)
        else:
            return b""
        if event.choice in self._finished:
            message = "a choice goes on after its end"
            raise MalformedResponse(message)
        if isinstance(event, ChoiceFinished):
            self._finished.add(event.choice)
        return sse_event(render_completion(self._identity, [choice]))

    def end(self, charge: Charge) -> bytes:
        """Return the usage chunk and `[DONE]`."""
        self._stream_end.mark_written()
        usage = render_usage(charge, is_byok=False)
        choices = last_choices(self._request)
        return sse_event(render_completion(self._identity, choices, usage=usage)) + sse_event(DONE)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error."""
        self._stream_end.mark_written()
        return render_stream_error(error, self._identity)


def render_completion(
    identity: ReplyIdentity, choices: Sequence[dict[str, object]], **more: object
) -> bytes:
    """Return the body of a completion or of a chunk."""
    return _encode(_completion(identity, choices) | more)


def _completion(identity: ReplyIdentity, choices: Sequence[dict[str, object]]) -> dict[str, object]:
    return {
        "id": identity.id,
        "object": "text_completion",
        "created": identity.created,
        "model": identity.model,
        "provider": identity.provider,
        "choices": choices,
    }


def render_choice(index: int, text: str, finish_reason: str | None) -> dict[str, object]:
    """Return a choice; `tool_calls`, which completions do not have, becomes `stop`.

    Source: https://platform.openai.com/docs/api-reference/completions/object, `finish_reason`.
    """
    if finish_reason == "tool_calls":
        finish_reason = "stop"
    return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": None}


def last_choices(request: Fields) -> Sequence[dict[str, object]]:
    """Return the choices of the usage chunk."""
    return [] if asks_for_usage(request) else [render_choice(0, "", None)]


def render_stream_error(error: TollhouseError, identity: ReplyIdentity) -> bytes:
    """Return the end of a failed stream: the error."""
    return errors.render_stream_error(error, _completion(identity, [render_choice(0, "", "error")]))
