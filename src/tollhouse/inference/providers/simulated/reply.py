"""What a simulated model says: pure, and the same for the same request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FINGERPRINT = "simulated"
_PIECE = re.compile(r"\s*\S+\s*|\s+")


class _Part(msgspec.Struct):
    type: str = "text"
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages = msgspec.json.Decoder(list[_Message])
_limit = msgspec.json.Decoder(int | None)


class NotUnderstood(ValueError):
    """A field is not of the chat format; the text names it."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a reply will say. A word, with the spaces around it, counts as a token."""

    said: list[str]
    finish: str
    prompt_words: int


def script(body: bytes) -> Script:
    """Return the reply to a request: its last user message, at most `max_tokens` words of it.

    Raises:
        NotUnderstood: The messages or the limit are not of the chat format.
    """
    fields = _fields.decode(body)
    try:
        messages = _messages.decode(fields["messages"])
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"messages: {error}."
        raise NotUnderstood(message) from None
    asked = [message.text for message in messages if message.role == "user"]
    words = _PIECE.findall(asked[-1]) if asked else []
    limit = _max_tokens(fields)
    cut = limit is not None and len(words) > limit
    return Script(
        said=words[:limit],
        finish="length" if cut else "stop",
        prompt_words=sum(len(message.text.split()) for message in messages),
    )


def _max_tokens(fields: Mapping[str, msgspec.Raw]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        try:
            limit = _limit.decode(fields.get(name, b"null"))
        except msgspec.DecodeError:
            limit = 0
        if limit is not None and limit < 1:
            message = f"{name}: must be an integer of at least 1."
            raise NotUnderstood(message)
        if limit is not None:
            return limit
    return None


def whole(model: str, script: Script) -> dict[str, object]:
    """Return a chat completion."""
    return {
        "id": _reply_id(model, script),
        "object": "chat.completion",
        "model": model,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(script.said), "refusal": None},
                "logprobs": None,
                "finish_reason": script.finish,
            }
        ],
        "usage": _usage(script),
    }


def chunks(model: str, script: Script) -> Iterator[Mapping[str, object]]:
    """Return the chunks of a stream, without the final `[DONE]`."""
    reply_id = _reply_id(model, script)

    def chunk(delta: dict[str, object], finish_reason: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {"id": reply_id, "system_fingerprint": FINGERPRINT, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in script.said:
        yield chunk({"content": piece})
    yield chunk({}, script.finish)
    yield {"id": reply_id, "choices": [], "usage": _usage(script)}


def _usage(script: Script) -> dict[str, int]:
    said = len(script.said)
    return {
        "prompt_tokens": script.prompt_words,
        "completion_tokens": said,
        "total_tokens": script.prompt_words + said,
    }


def _reply_id(model: str, script: Script) -> str:
    digest = sha256("\0".join((model, *script.said)).encode("utf-8", "surrogatepass")).hexdigest()
    return f"sim-{digest[:24]}"
