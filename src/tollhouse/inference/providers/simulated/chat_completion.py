"""A simulated model's words as a provider's chat completion: whole, and in chunks. Pure.

Source: https://platform.openai.com/docs/api-reference/chat/object and .../chat/streaming, and the
public gateway's reference of reasoning tokens for `reasoning` and `reasoning_details`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tollhouse.inference.providers.simulated.reasoning import FORMAT, sign

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tollhouse.inference.providers.simulated.reply_planner import PlannedReply, ReplySegment

FINGERPRINT: Final = "simulated"
_NEVER: Final = -9999.0
"""The log-probability of what is never said."""

JsonObject = dict[str, object]


def render_completion(model: str, script: PlannedReply) -> JsonObject:
    """Return a chat completion."""
    return {
        "id": _reply_id(model, script),
        "object": "chat.completion",
        "model": model,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": index,
                "message": _message(script, index),
                "logprobs": _logprobs(script, _pieces(script, "text")),
                "finish_reason": script.finish,
            }
            for index in range(script.choices)
        ],
        "usage": _usage(script),
    }


def render_chunks(model: str, script: PlannedReply) -> Iterator[Mapping[str, object]]:
    """Return the chunks of a stream, without the final `[DONE]`: one choice after the other."""
    common: JsonObject = {
        "id": _reply_id(model, script),
        "object": "chat.completion.chunk",
        "model": model,
        "system_fingerprint": FINGERPRINT,
    }
    for index in range(script.choices):
        for choice in _chunk_choices(script, index):
            yield {**common, "choices": [{"index": index, **choice}]}
    yield {**common, "choices": [], "usage": _usage(script)}


# Whole


def _message(script: PlannedReply, index: int) -> JsonObject:
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(_pieces(script, "text")) if _speaks(script) else None,
        "refusal": "".join(_pieces(script, "refusal")) or None,
    }
    thoughts = "".join(_pieces(script, "thoughts"))
    if thoughts and script.shows_thoughts:
        message["reasoning"] = thoughts
        message["reasoning_details"] = [_detail(thoughts, sign(thoughts))]
    calls = [run for run in script.segments if run.kind == "call"]
    if calls:
        message["tool_calls"] = [
            _call(_call_id(script, index, number), call.name, "".join(call.pieces))
            for number, call in enumerate(calls)
        ]
    return message


def _speaks(script: PlannedReply) -> bool:
    return any(run.kind == "text" for run in script.segments)


def _pieces(script: PlannedReply, kind: str) -> list[str]:
    return [piece for run in script.segments if run.kind == kind for piece in run.pieces]


# Streamed


def _chunk_choices(script: PlannedReply, index: int) -> Iterator[JsonObject]:
    yield _choice({"role": "assistant", "content": "" if _speaks(script) else None})
    number = 0
    for run in script.segments:
        if run.kind == "call":
            yield from map(_choice, _call_deltas(run, number, _call_id(script, index, number)))
            number += 1
        elif run.kind == "text":
            for piece in run.pieces:
                yield _choice({"content": piece}, _logprobs(script, [piece]))
        elif run.kind == "refusal":
            yield from (_choice({"refusal": piece}) for piece in run.pieces)
        elif script.shows_thoughts:
            yield from map(_choice, _thought_deltas(run.pieces))
    yield {**_choice({}), "finish_reason": script.finish}


def _choice(delta: JsonObject, logprobs: JsonObject | None = None) -> JsonObject:
    return {"delta": delta, "logprobs": logprobs, "finish_reason": None}


def _call_deltas(run: ReplySegment, number: int, call_id: str) -> Iterator[JsonObject]:
    yield {"tool_calls": [{"index": number, **_call(call_id, run.name, "")}]}
    for piece in run.pieces:
        yield {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}


def _thought_deltas(pieces: Sequence[str]) -> Iterator[JsonObject]:
    for piece in pieces:
        yield {"reasoning": piece, "reasoning_details": [_detail(piece, None)]}
    yield {"reasoning_details": [_detail("", sign("".join(pieces)))]}


# Parts of both


def _detail(text: str, signature: str | None) -> JsonObject:
    return {
        "type": "reasoning.text",
        "text": text,
        "signature": signature,
        "id": None,
        "format": FORMAT if signature else None,
        "index": 0,
    }


def _call(call_id: str, name: str, arguments: str) -> JsonObject:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _call_id(script: PlannedReply, choice: int, number: int) -> str:
    return f"call_{script.digest[:16]}_{choice}_{number}"


def _logprobs(script: PlannedReply, words: Sequence[str]) -> JsonObject | None:
    """Return the log-probabilities of words: each is certain, as nothing else could be said."""
    if script.top_logprobs is None or not words:
        return None
    return {"content": [_certain(word, script.top_logprobs) for word in words], "refusal": None}


def _certain(word: str, top: int) -> JsonObject:
    others = [_token(f"<{rank}>", _NEVER) for rank in range(2, top + 1)]
    return {**_token(word, 0.0), "top_logprobs": [_token(word, 0.0), *others][:top]}


def _token(word: str, logprob: float) -> JsonObject:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode())}


def _usage(script: PlannedReply) -> JsonObject:
    usage: JsonObject = {
        "prompt_tokens": script.prompt_words,
        "completion_tokens": script.words,
        "total_tokens": script.prompt_words + script.words,
    }
    if script.thought_words:
        usage["completion_tokens_details"] = {"reasoning_tokens": script.thought_words}
    return usage


def _reply_id(model: str, script: PlannedReply) -> str:
    said = (piece for run in script.segments for piece in run.pieces)
    text = "\0".join((model, script.digest, *said))
    return f"sim-{sha256(text.encode()).hexdigest()[:24]}"
