"""Errors of the chat format: the gateway's own in a stream, and a provider's.

Before the first byte an error is the common envelope. After status 200 was sent it is part of the
last chunk, and is repeated alone after `[DONE]`:

    {"error", "id", ..., "choices": [{"finish_reason": "error"}]}  [DONE]  {"error"}

Source: the public gateway's streaming reference, "errors during streaming", for the chunk. Its own
clients and OpenAI's stop reading at `[DONE]`. The `openai` provider of Vercel's AI SDK ignores an
error beside `choices`, and reads on. go-openai recognizes an error only at the start of an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.adapter import ErrorEvent
from tollhouse.inference.formats.chat_completions.wire import DONE
from tollhouse.inference.formats.raw_json import encoder
from tollhouse.inference.sse import event
from tollhouse.kernel.envelope import error_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class _ProviderError(msgspec.Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None


_MAX_CODE_LENGTH = 100
_error = msgspec.json.Decoder(_ProviderError | str)


def parse_error_event(data: msgspec.Raw | bytes) -> ErrorEvent:
    """Parse an `error` value: OpenAI's object or a bare string."""
    try:
        error = _error.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorEvent(None, None)
    if isinstance(error, str):
        return ErrorEvent(None, error)
    code = error.type if error.code is None else error.code
    return ErrorEvent(code[:_MAX_CODE_LENGTH] if isinstance(code, str) else code, error.message)


def render_stream_error(error: TollhouseError, chunk: Mapping[str, object]) -> bytes:
    """Return the end of a failed stream: the error.

    Args:
        error: What went wrong.
        chunk: The last chunk, without the error.
    """
    shown = error_object(error)
    shown["metadata"] = {"error_type": error.code, **error.metadata}
    ends = (encoder.encode({"error": shown, **chunk}), DONE, encoder.encode({"error": shown}))
    return b"".join(map(event, ends))


def error_chunk(reply: ReplyIdentity) -> Mapping[str, object]:
    """Return the last chunk of a failed stream, without the error."""
    return {
        "id": reply.id,
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": reply.model,
        "provider": reply.provider,
        "choices": [
            {
                "index": 0,
                "delta": {"content": ""},
                "finish_reason": "error",
                "native_finish_reason": None,
                "logprobs": None,
            }
        ],
    }
