"""One question and one answer in every format: requests, replies, and how a reply is checked.

The upstream sends the replies, and the load expects them: a server that cuts or invents does not
look fast. No provider of the measurements speaks responses.

Source: https://platform.openai.com/docs/api-reference/chat,
https://platform.openai.com/docs/api-reference/responses and
https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import random
import re
from functools import cache
from math import isclose
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

PROVIDER_MODEL: Final = "fixed"
CHUNKS: Final = 50
"""Pieces of a stream, each a write of its own; the last holds the reply's end too."""
CHUNK_MS: Final = 5.0
"""Between two of them."""
SLOW_MS: Final = 200.0
"""The same on the upstream's slow port."""
STAMP: Final = b"0" * 19
"""Where a chat chunk says when it was written, in nanoseconds of the machine's monotonic clock."""
_STAMPED = re.compile(rb'"fp_([0-9]{19})"')
_TOKENS = re.compile(rb'"((?:prompt|completion|input|output)_tokens)":([0-9]+)')
_COST = re.compile(rb'"cost":([0-9.e-]+)')

_WORDS = "the quick brown fox jumps over the lazy dog and then it rests for a while in the shade "
_INSTRUCTIONS = "You are terse."
_QUESTION = (_WORDS * 30)[:1_880]
ANSWER: Final = (_WORDS * 20)[:560].strip()
PIECES: Final = tuple(f" word{number:03d}" for number in range(CHUNKS))

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
    text: bytes
    """The field with the text of a whole reply."""
    piece: bytes
    """The field with each piece of a streamed one."""
    finish: bytes
    """What says that the reply is complete."""
    end: bytes
    """Of a stream."""

    def check(self, body: bytes, *, stream: bool, priced: bool) -> None:
        """Check a reply's text, its end, its tokens, and the cost where the gateway adds it.

        Raises:
            Truncated: It is not the reply that the upstream sent, or not all of it.
        """
        field = self.piece if stream else self.text
        found = [text.decode() for text in re.findall(b'"%b":"([^"]+)"' % field, body)]
        _require(found == (list(PIECES) if stream else [ANSWER]), "another text", body)
        _require(self.finish in body and (not stream or body.endswith(self.end)), "no end", body)
        # The counts at the end of a stream hold over those at its start.
        tokens = {name: int(count) for name, count in _TOKENS.findall(body)}
        counts = tuple(tokens.values())
        _require(counts == (INPUT_TOKENS, OUTPUT_TOKENS), "another usage", body)
        costs = [float(cost) for cost in _COST.findall(body)]
        _require(not priced or (costs and isclose(costs[-1], COST)), "another cost", body)


def _require(holds: object, otherwise: str, body: bytes) -> None:
    if not holds:
        raise Truncated(f"{otherwise} than the upstream's: {body[-200:]!r}")


def with_question(request: bytes, size: int) -> bytes:
    """Return a request with a question of so many bytes in place of its own; 0: as it is."""
    if not size:
        return request
    longer = (_WORDS * (size // len(_WORDS) + 1))[:size]
    return request.replace(_QUESTION.encode(), longer.encode())


class Answer(NamedTuple):
    """What the upstream sends on a path."""

    whole: bytes
    pieces: tuple[bytes, ...]
    """A stream as it is written, one element for each write."""


def stamps(data: bytes) -> list[int]:
    """Return when the chunks in some bytes of a stream were written, in nanoseconds."""
    return [int(digits) for digits in _STAMPED.findall(data)]


# Chat completions

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


# Messages


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


# Responses


def responses_request(model: str, *, stream: bool) -> bytes:
    """Return a responses request."""
    content = [{"type": "input_text", "text": _QUESTION}]
    given = [{"type": "message", "role": "user", "content": content}]
    body: dict[str, object] = {"model": model, "instructions": _INSTRUCTIONS, "input": given}
    more: dict[str, object] = {"store": False, **({"stream": True} if stream else {})}
    return msgspec.json.encode(body | _SAMPLING | more)


FORMATS: Final[Mapping[str, Format]] = {
    "chat": Format(
        "/v1/chat/completions",
        chat_request,
        *(b"content", b"content"),
        b'"finish_reason":"stop"',
        _DONE,
    ),
    "messages": Format(
        "/v1/messages",
        messages_request,
        *(b"text", b"text"),
        b'"stop_reason":"end_turn"',
        b'"type":"message_stop"}\n\n',
    ),
    "responses": Format(
        "/v1/responses",
        responses_request,
        *(b"text", b"delta"),
        b'"status":"completed"',
        _DONE,
    ),
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


# Batches
#
# One of 50,000 items is as large as the gateway takes one by default. Its words are as rare as
# those of a language (by Zipf's law), the same in each run: it compresses to a third, as prose
# does, and no chunk repeats itself.

ITEMS_MODEL: Final = "bench/items"
ITEMS_BASE: Final = "/items/v1"
"""Where the provider of that model is, at the upstream."""
ITEMS_PATH: Final = ITEMS_BASE + FORMATS["chat"].path.removeprefix("/v1")
ITEM_BYTES: Final = 3_990
"""Of an item in a batch, with its comma."""
REPLY_BYTES: Final = 4_000
_REPLIES: Final = 256
"""Different ones: more text than a compressor of level 1 looks back at (512 KB)."""
_VOCABULARY: Final = 5_000
_MANY: Final = 500_000
_LETTERS: Final = "etaoinshrdlucmfwypvbgk"
_SYSTEM: Final = {"role": "system", "content": "Answer in one sentence, naïvely.\nNo lists."}


def item(number: int) -> bytes:
    """Return an item of a batch, as it is submitted."""
    name = f"request-{number:05}"
    return _item(name, _text(number, ITEM_BYTES - 1 - len(_item(name, ""))))


def write_body(path: Path, items: int) -> Path:
    """Write a batch to a file and return its path."""
    with path.open("wb") as file:
        file.write(b'{"endpoint":"/v1/chat/completions","model":"%b",' % ITEMS_MODEL.encode())
        file.write(b'"requests":[')
        for number in range(items):
            file.write(b"," + item(number) if number else item(number))
        file.write(b"]}")
    return path


def replies() -> Iterator[bytes]:
    """Yield different replies of the provider."""
    rest = REPLY_BYTES - len(chat_reply(""))
    for number in range(_REPLIES):
        yield chat_reply(_text(number, rest))


def _item(name: str, text: str) -> bytes:
    user = {"role": "user", "content": text}
    body = {"messages": [_SYSTEM, user], "max_tokens": 1_000, "temperature": 0.2}
    return msgspec.json.encode({"custom_id": name, "body": body})


def _text(number: int, size: int) -> str:
    text = _prose()
    at = number * size % (len(text) - size)
    return text[at : at + size]


@cache
def _prose() -> str:
    source = random.Random(1)
    words = ["".join(source.choices(_LETTERS, k=source.randint(2, 10))) for _ in range(_VOCABULARY)]
    shares = [1 / (rank + 2) for rank in range(_VOCABULARY)]
    return " ".join(source.choices(words, shares, k=_MANY))
