"""One question and one answer in every format: requests, replies, and how a reply is checked.

The upstream sends the replies, and the load expects them: a server that cuts or invents does not
look fast. No provider of the measurements speaks responses.

Source: https://platform.openai.com/docs/api-reference/chat,
https://platform.openai.com/docs/api-reference/responses and
https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import re
from math import isclose
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROVIDER_MODEL: Final = "fixed"
CHUNKS: Final = 50
"""Pieces of a stream, each a write of its own; the last holds the reply's end too."""
STAMP: Final = b"0" * 19
"""Where a chat chunk says when it was written, in nanoseconds of the machine's monotonic clock."""
_STAMPED = re.compile(rb'"fp_([0-9]{19})"')

_WORDS = "the quick brown fox jumps over the lazy dog and then it rests for a while in the shade "
_INSTRUCTIONS = "You are terse."
_QUESTION = (_WORDS * 30)[:1_880]
ANSWER: Final = (_WORDS * 20)[:560].strip()
PIECES: Final = tuple(f" word{number:03d}" for number in range(CHUNKS))
STREAMED: Final = "".join(PIECES)

INPUT_TOKENS: Final = 480
OUTPUT_TOKENS: Final = 140
INPUT_PRICE: Final = "0.000001"
OUTPUT_PRICE: Final = "0.000002"
COST: Final = INPUT_TOKENS * float(INPUT_PRICE) + OUTPUT_TOKENS * float(OUTPUT_PRICE)

_DONE = b"data: [DONE]\n\n"
_SAMPLING: dict[str, object] = {"temperature": 0.2}


class Truncated(ValueError):
    """A reply is not the one that the upstream sent, or not all of it."""


class Format(NamedTuple):
    """A client's format."""

    path: str
    request: Callable[..., bytes]
    """Takes a model's name and `stream`; returns a request of 2 KB."""
    check: Callable[..., None]
    """Takes a reply, and whether it is a stream and says its cost; raises `Truncated`."""


class Answer(NamedTuple):
    """What the upstream sends on a path."""

    whole: bytes
    pieces: tuple[bytes, ...]
    """A stream as it is written, one element for each write."""


def stamps(data: bytes) -> list[int]:
    """Return when the chunks in some bytes of a stream were written, in nanoseconds."""
    return [int(digits) for digits in _STAMPED.findall(data)]


def read_events(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and data of a stream's events, without comments and without `[DONE]`."""
    if not body.endswith(b"\n\n"):
        raise Truncated("a stream that ends within an event")
    found: list[tuple[str, dict[str, Any]]] = []
    for block in body.removesuffix(_DONE).split(b"\n\n"):
        fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n"))
        if b"data" in fields:
            found.append((fields.get(b"event", b"").decode(), _decode(fields[b"data"])))
    return found


def _decode(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Truncated(f"not a reply: {error}") from None


def _expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Truncated(f"{what} is another one than the upstream's")


def _check_usage(usage: Mapping[str, Any] | None, tokens: tuple[str, str], *, priced: bool) -> None:
    """Check the counts of tokens, and the cost, which the gateway adds."""
    if usage is None:
        raise Truncated("no usage")
    _expect(tuple(usage.get(name) for name in tokens), (INPUT_TOKENS, OUTPUT_TOKENS), "the usage")
    if priced and not isclose(usage.get("cost") or 0.0, COST):
        raise Truncated(f"the cost in the usage is {usage.get('cost')}")


# Chat completions

_CHAT_TOKENS = ("prompt_tokens", "completion_tokens")
_CHAT_USAGE = {
    "prompt_tokens": INPUT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def chat_request(model: str, *, stream: bool) -> bytes:
    """Return a chat request."""
    messages = [
        {"role": "system", "content": _INSTRUCTIONS},
        {"role": "user", "content": _QUESTION},
    ]
    body: dict[str, object] = {"model": model, "messages": messages, **_SAMPLING}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return msgspec.json.encode(body)


def chat_reply(answer: str = ANSWER) -> bytes:
    """Return the upstream's whole reply, about 1 KB unless it has another answer to give."""
    message = {"role": "assistant", "content": answer, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = _CHAT_USAGE | {"prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}}
    return msgspec.json.encode(_chat("chat.completion", [choice], usage))


def _chat(kind: str, choices: list[Any], usage: object = None) -> dict[str, object]:
    return {
        "id": "chatcmpl-bench",
        "object": kind,
        "created": 1_700_000_000,
        "model": PROVIDER_MODEL,
        "system_fingerprint": f"fp_{STAMP.decode()}",
        "choices": choices,
        "usage": usage,
    }


def _chat_pieces() -> tuple[bytes, ...]:
    def event(text: str | None, finish: str | None = None) -> bytes:
        delta = {"role": "assistant", "content": text}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = _chat("chat.completion.chunk", [choice])
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"

    usage = msgspec.json.encode(_chat("chat.completion.chunk", [], _CHAT_USAGE))
    last = event(PIECES[-1], "stop") + b"data: " + usage + b"\n\n" + _DONE
    return (*(event(text) for text in PIECES[:-1]), last)


def _check_chat(body: bytes, *, stream: bool, priced: bool) -> None:
    if not stream:
        reply = _decode(body)
        said = [(each["message"]["content"], each["finish_reason"]) for each in reply["choices"]]
        _expect(said, [(ANSWER, "stop")], "the answer")
        _check_usage(reply.get("usage"), _CHAT_TOKENS, priced=priced)
        return
    if not body.endswith(_DONE):
        raise Truncated("a stream without [DONE] at its end")
    chunks = [data for _, data in read_events(body)]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    texts = [choice["delta"].get("content") for choice in choices]
    _expect([text for text in texts if text], list(PIECES), "the text")
    finishes = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    if finishes != ["stop"] or not choices[-1].get("finish_reason"):
        raise Truncated("a stream that does not finish once, at its end")
    _check_usage(chunks[-1].get("usage"), _CHAT_TOKENS, priced=priced)


# Messages

_TOKENS = ("input_tokens", "output_tokens")
_MESSAGE_EVENTS = [
    "message_start",
    "content_block_start",
    *["content_block_delta"] * CHUNKS,
    "content_block_stop",
    "message_delta",
    "message_stop",
]


def messages_request(model: str, *, stream: bool) -> bytes:
    """Return a messages request."""
    messages = [{"role": "user", "content": _QUESTION}]
    body = {"model": model, "max_tokens": 1_024, "system": _INSTRUCTIONS, "messages": messages}
    return msgspec.json.encode(body | _SAMPLING | ({"stream": True} if stream else {}))


def _message(content: list[Any], stop_reason: str | None, output: int) -> dict[str, object]:
    return {
        "id": "msg_bench0000000000000000",
        "type": "message",
        "role": "assistant",
        "model": PROVIDER_MODEL,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": output,
            "service_tier": "standard",
        },
    }


def _messages_pieces() -> tuple[bytes, ...]:
    def event(kind: str, **fields: object) -> bytes:
        data = msgspec.json.encode({"type": kind, **fields})
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

    begin = (
        event("message_start", message=_message([], None, 1))
        + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + event("ping")
    )
    first, *middle, last = (
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
        for text in PIECES
    )
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    end = (
        event("content_block_stop", index=0)
        + event("message_delta", delta=delta, usage={"output_tokens": OUTPUT_TOKENS})
        + event("message_stop")
    )
    return (begin + first, *middle, last + end)


def _check_messages(body: bytes, *, stream: bool, priced: bool) -> None:
    if not stream:
        reply = _decode(body)
        said = [(block.get("type"), block.get("text")) for block in reply["content"]]
        _expect(said, [("text", ANSWER)], "the answer")
        _expect((reply["type"], reply["stop_reason"]), ("message", "end_turn"), "the end")
        _check_usage(reply.get("usage"), _TOKENS, priced=priced)
        return
    events = [(name, data) for name, data in read_events(body) if name != "ping"]
    _expect([name for name, _ in events], _MESSAGE_EVENTS, "the order of events")
    _expect([data["type"] for _, data in events], _MESSAGE_EVENTS, "the type of an event")
    deltas = [(data["delta"]["type"], data["delta"]["text"]) for _, data in events[2:-3]]
    _expect(deltas, [("text_delta", text) for text in PIECES], "the text")
    end = events[-2][1]
    _expect(end["delta"]["stop_reason"], "end_turn", "the end")
    # The counts at the end hold over those at the start.
    usage = {**events[0][1]["message"]["usage"], **(end.get("usage") or {})}
    _check_usage(usage, _TOKENS, priced=priced)


# Responses

_RESPONSE_EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    *["response.output_text.delta"] * CHUNKS,
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]
_TEXT_AT = 4
"""Where the text begins among these events."""


def responses_request(model: str, *, stream: bool) -> bytes:
    """Return a responses request."""
    content = [{"type": "input_text", "text": _QUESTION}]
    given = [{"type": "message", "role": "user", "content": content}]
    body: dict[str, object] = {"model": model, "instructions": _INSTRUCTIONS, "input": given}
    more: dict[str, object] = {"store": False, **({"stream": True} if stream else {})}
    return msgspec.json.encode(body | _SAMPLING | more)


def _check_responses(body: bytes, *, stream: bool, priced: bool) -> None:
    response, text = (_streamed_response(body), STREAMED) if stream else (_decode(body), ANSWER)
    _expect(response.get("status"), "completed", "the status")
    parts = [
        (item["type"], part["type"], part.get("text"))
        for item in response["output"]
        for part in item.get("content", ())
    ]
    _expect(parts, [("message", "output_text", text)], "the answer")
    _check_usage(response.get("usage"), _TOKENS, priced=priced)


def _streamed_response(body: bytes) -> dict[str, Any]:
    if not body.endswith(_DONE):
        raise Truncated("a stream without [DONE] at its end")
    events = read_events(body)
    _expect([name for name, _ in events], _RESPONSE_EVENTS, "the order of events")
    _expect([data["type"] for _, data in events], _RESPONSE_EVENTS, "the type of an event")
    numbers = [data["sequence_number"] for _, data in events]
    _expect(numbers, list(range(len(events))), "the number of an event")
    deltas = [data["delta"] for _, data in events[_TEXT_AT : _TEXT_AT + CHUNKS]]
    _expect(deltas, list(PIECES), "the text")
    _expect(events[_TEXT_AT + CHUNKS][1]["text"], STREAMED, "the whole text")
    response: dict[str, Any] = events[-1][1]["response"]
    return response


FORMATS: Final[Mapping[str, Format]] = {
    "chat": Format("/v1/chat/completions", chat_request, _check_chat),
    "messages": Format("/v1/messages", messages_request, _check_messages),
    "responses": Format("/v1/responses", responses_request, _check_responses),
}
ANSWERS: Final[Mapping[str, Answer]] = {
    FORMATS["chat"].path: Answer(chat_reply(), _chat_pieces()),
    FORMATS["messages"].path: Answer(
        msgspec.json.encode(
            _message([{"type": "text", "text": ANSWER}], "end_turn", OUTPUT_TOKENS)
        ),
        _messages_pieces(),
    ),
}
"""By the path of the request."""
