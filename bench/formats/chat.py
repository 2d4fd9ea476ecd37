"""OpenAI's chat completions: the request, the reply, and how a reply is known to be whole.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from typing import Final

import msgspec

from bench.traffic import (
    ANSWER,
    FINGERPRINT,
    INPUT_TOKENS,
    INSTRUCTIONS,
    OUTPUT_TOKENS,
    PIECES,
    PROVIDER_MODEL,
    QUESTION,
    TEMPERATURE,
    Truncated,
    check_text,
    check_usage,
    read_events,
)

PATH: Final = "/v1/chat/completions"

_END = b"data: [DONE]\n\n"
_USAGE = {
    "prompt_tokens": INPUT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Reply)


def request_body(model: str, *, stream: bool) -> bytes:
    """Return a request of 2 KB, as the client sends it."""
    body: dict[str, object] = {
        "model": model,
        "messages": [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": QUESTION},
        ],
        "temperature": TEMPERATURE,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return msgspec.json.encode(body)


def reply_body(answer: str = ANSWER) -> bytes:
    """Return the upstream's whole reply, about 1 KB unless it has another answer to give."""
    message = {"role": "assistant", "content": answer, "refusal": None}
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
            "system_fingerprint": FINGERPRINT,
        }
    )


def stream_pieces() -> tuple[bytes, ...]:
    """Return the upstream's stream as it is written, one element for each write."""
    pieces = [_event([_choice(text, None)]) for text in PIECES[:-1]]
    end = _event([_choice(PIECES[-1], "stop")]) + _event([], usage=_USAGE) + _END
    return (*pieces, end)


def check_whole(body: bytes, *, priced: bool) -> None:
    """Accept a whole reply; see `bench.formats.Check`."""
    reply = _decode(body)
    said = [
        (choice.message and choice.message.content, choice.finish_reason)
        for choice in reply.choices
    ]
    check_text(said, [(ANSWER, "stop")])
    _check_usage(reply.usage, priced=priced)


def check_stream(body: bytes, *, priced: bool) -> None:
    """Accept a stream; see `bench.formats.Check`."""
    if not body.endswith(_END):
        raise Truncated("a stream without [DONE] at its end")
    chunks = [_decode(event.data) for event in read_events(body)[:-1]]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    texts = [choice.delta.content for choice in choices if choice.delta and choice.delta.content]
    check_text(tuple(texts), PIECES)
    finishes = [choice.finish_reason for choice in choices if choice.finish_reason]
    if finishes != ["stop"] or choices[-1].finish_reason is None:
        raise Truncated("a stream that does not finish once, at its end")
    _check_usage(chunks[-1].usage, priced=priced)


def _choice(text: str, finish_reason: str | None) -> dict[str, object]:
    delta = {"role": "assistant", "content": text}
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _event(choices: list[dict[str, object]], usage: dict[str, int] | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": PROVIDER_MODEL,
        "system_fingerprint": FINGERPRINT,
        "choices": choices,
        "usage": usage,
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _decode(data: bytes) -> _Reply:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Truncated(f"not a chat reply: {error}") from None


def _check_usage(usage: _Usage | None, *, priced: bool) -> None:
    if usage is None:
        raise Truncated("no usage")
    check_usage(usage.prompt_tokens, usage.completion_tokens, usage.cost, priced=priced)
