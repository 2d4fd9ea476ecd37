"""Errors in the chat format: ours in mid-stream, and a provider's.

Before the stream an error is the common envelope; after the 200 went out it is this chunk, and
the stream ends after it.

Source: the public gateway's streaming reference, "errors during streaming".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.base import ErrorEvent
from tollhouse.kernel.envelope import error_object

if TYPE_CHECKING:
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class _ProviderError(msgspec.Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None


_LONGEST_CODE = 100
_error = msgspec.json.Decoder(_ProviderError | str)


def parse_error_event(data: msgspec.Raw | bytes) -> ErrorEvent:
    """Return what an `error` object says, in OpenAI's shape or as a bare text."""
    try:
        error = _error.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorEvent(None, None)
    if isinstance(error, str):
        return ErrorEvent(None, error)
    code = error.type if error.code is None else error.code
    return ErrorEvent(code[:_LONGEST_CODE] if isinstance(code, str) else code, error.message)


def error_chunk(error: TollhouseError, reply: ReplyIdentity) -> dict[str, object]:
    """Return the chunk that tells a client in mid-stream what went wrong."""
    shown = error_object(error)
    shown["metadata"] = {"error_type": error.code, **error.metadata}
    return {
        "id": reply.id,
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": reply.model,
        "provider": reply.provider,
        "error": shown,
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
