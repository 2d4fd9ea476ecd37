"""What goes over the wire: the request, the reply, and how a reply is known to be whole.

Shared by the upstream, which sends these bytes, and the load, which expects what they say.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

PROVIDER_MODEL: Final = "fixed"
PATH: Final = "/v1/chat/completions"
CHUNKS: Final = 50
"""Pieces of a stream, each a write of its own; the last holds finish, usage and `[DONE]` too."""

STAMP_DIGITS: Final = 19
STAMP: Final = b"0" * STAMP_DIGITS
"""Where each chunk says when it was written, in nanoseconds of the machine's monotonic clock."""

_FINGERPRINT = f"fp_{STAMP.decode()}"
_STAMPED = re.compile(rb'"fp_([0-9]{19})"')
_QUESTION_BYTES = 1_880
_ANSWER_BYTES = 560
_WORDS = "the quick brown fox jumps over the lazy dog and then it rests for a while in the shade "

ANSWER: Final = (_WORDS * 20)[:_ANSWER_BYTES].strip()
PIECES: Final = tuple(f" word{number:03d}" for number in range(CHUNKS))
_END = b"data: [DONE]\n\n"
_USAGE = {"prompt_tokens": 480, "completion_tokens": 140, "total_tokens": 620}


class Truncated(ValueError):
    """A reply is not the one that the upstream sent, or not all of it."""


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int
    cost: float | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Reply)


def request_body(model: str, *, stream: bool) -> bytes:
    """Return a request of 2 KB, as the client sends it."""
    question = (_WORDS * 30)[:_QUESTION_BYTES]
    body: dict[str, object] = {
        "model": model,
        "messages": [
            {"role": "system", "content": "You are terse."},
            {"role": "user", "content": question},
        ],
        "temperature": 0.2,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return msgspec.json.encode(body)


def reply_body() -> bytes:
    """Return the upstream's whole reply, about 1 KB."""
    message = {"role": "assistant", "content": ANSWER, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    details = {"cached_tokens": 0, "audio_tokens": 0}
    return msgspec.json.encode(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": PROVIDER_MODEL,
            "choices": [choice],
            "usage": _USAGE | {"prompt_tokens_details": details},
            "system_fingerprint": _FINGERPRINT,
        }
    )


def stream_pieces() -> tuple[bytes, ...]:
    """Return the upstream's stream as it is written, one element for each write."""
    pieces = [_event([_choice(text, None)]) for text in PIECES[:-1]]
    end = _event([_choice(PIECES[-1], "stop")]) + _event([], usage=_USAGE) + _END
    return (*pieces, end)


def check_whole(body: bytes, *, priced: bool) -> None:
    """Accept a whole reply.

    Args:
        body: The reply.
        priced: Whether it must say what it cost, as the gateway's does.

    Raises:
        Truncated: It is another one, or not all of it.
    """
    reply = _decode(body)
    message = reply.choices[0].message if reply.choices else None
    if message is None or message.content != ANSWER:
        raise Truncated("another answer than the upstream's")
    _check_usage(reply.usage, priced=priced)


def check_stream(body: bytes, *, priced: bool) -> None:
    """Accept a stream, given as all its bytes.

    Raises:
        Truncated: It is another one, or not all of it.
    """
    if not body.endswith(_END):
        raise Truncated("a stream without [DONE] at its end")
    events = body.removesuffix(_END).split(b"\n\n")
    text: list[str] = []
    usage: _Usage | None = None
    finished = False
    for event in events:
        if not event.startswith(b"data: "):
            continue
        chunk = _decode(event[6:])
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finished = finished or choice.finish_reason == "stop"
            if choice.delta is not None and choice.delta.content:
                text.append(choice.delta.content)
    if tuple(text) != PIECES or not finished:
        raise Truncated("another stream than the upstream's")
    _check_usage(usage, priced=priced)


def stamps(data: bytes) -> list[int]:
    """Return when the chunks in some bytes of a stream were written, in nanoseconds."""
    return [int(digits) for digits in _STAMPED.findall(data)]


def _choice(text: str, finish_reason: str | None) -> dict[str, object]:
    delta = {"role": "assistant", "content": text}
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _event(choices: list[dict[str, object]], usage: dict[str, int] | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": PROVIDER_MODEL,
        "system_fingerprint": _FINGERPRINT,
        "choices": choices,
        "usage": usage,
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _decode(data: bytes) -> _Reply:
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Truncated(f"not a chat reply: {error}") from None


def _check_usage(usage: _Usage | None, *, priced: bool) -> None:
    if usage is None or usage.completion_tokens != _USAGE["completion_tokens"]:
        raise Truncated("no usage, or another one than the upstream's")
    if priced and not usage.cost:
        raise Truncated("no cost in the usage")
