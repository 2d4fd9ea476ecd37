"""Renders a simulated response as a chat completion, complete or in chunks. Pure.

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
"""The log-probability of alternatives that never occur."""

JsonObject = dict[str, object]


def render_completion(model: str, plan: PlannedReply) -> JsonObject:
    """Return a chat completion."""
    return {
        "id": _reply_id(model, plan),
        "object": "chat.completion",
        "model": model,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": index,
                "message": _message(plan, index),
                "logprobs": _logprobs(plan, _pieces(plan, "text")),
                "finish_reason": plan.finish,
            }
            for index in range(plan.choices)
        ],
        "usage": _usage(plan),
    }


def render_chunks(model: str, plan: PlannedReply) -> Iterator[Mapping[str, object]]:
    """Return the chunks of a stream, without the final `[DONE]`: one choice after the other."""
    common: JsonObject = {
        "id": _reply_id(model, plan),
        "object": "chat.completion.chunk",
        "model": model,
        "system_fingerprint": FINGERPRINT,
    }
    for index in range(plan.choices):
        for choice in _chunk_choices(plan, index):
            yield {**common, "choices": [{"index": index, **choice}]}
    yield {**common, "choices": [], "usage": _usage(plan)}


# Complete responses


def _message(plan: PlannedReply, index: int) -> JsonObject:
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(_pieces(plan, "text")) if _has_text(plan) else None,
        "refusal": "".join(_pieces(plan, "refusal")) or None,
    }
    reasoning = "".join(_pieces(plan, "reasoning"))
    if reasoning and plan.shows_reasoning:
        message["reasoning"] = reasoning
        message["reasoning_details"] = [_detail(reasoning, sign(reasoning))]
    calls = [segment for segment in plan.segments if segment.kind == "call"]
    if calls:
        message["tool_calls"] = [
            _call(_call_id(plan, index, number), call.name, "".join(call.pieces))
            for number, call in enumerate(calls)
        ]
    return message


def _has_text(plan: PlannedReply) -> bool:
    return any(segment.kind == "text" for segment in plan.segments)


def _pieces(plan: PlannedReply, kind: str) -> list[str]:
    return [piece for segment in plan.segments if segment.kind == kind for piece in segment.pieces]


# Streamed


def _chunk_choices(plan: PlannedReply, index: int) -> Iterator[JsonObject]:
    yield _choice({"role": "assistant", "content": "" if _has_text(plan) else None})
    number = 0
    for segment in plan.segments:
        if segment.kind == "call":
            yield from map(_choice, _call_deltas(segment, number, _call_id(plan, index, number)))
            number += 1
        elif segment.kind == "text":
            for piece in segment.pieces:
                yield _choice({"content": piece}, _logprobs(plan, [piece]))
        elif segment.kind == "refusal":
            yield from (_choice({"refusal": piece}) for piece in segment.pieces)
        elif plan.shows_reasoning:
            yield from map(_choice, _reasoning_deltas(segment.pieces))
    yield {**_choice({}), "finish_reason": plan.finish}


def _choice(delta: JsonObject, logprobs: JsonObject | None = None) -> JsonObject:
    return {"delta": delta, "logprobs": logprobs, "finish_reason": None}


def _call_deltas(segment: ReplySegment, number: int, call_id: str) -> Iterator[JsonObject]:
    yield {"tool_calls": [{"index": number, **_call(call_id, segment.name, "")}]}
    for piece in segment.pieces:
        yield {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}


def _reasoning_deltas(pieces: Sequence[str]) -> Iterator[JsonObject]:
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


def _call_id(plan: PlannedReply, choice: int, number: int) -> str:
    return f"call_{plan.digest[:16]}_{choice}_{number}"


def _logprobs(plan: PlannedReply, words: Sequence[str]) -> JsonObject | None:
    """Return the log-probabilities of words; each word is certain."""
    if plan.top_logprobs is None or not words:
        return None
    return {"content": [_certain(word, plan.top_logprobs) for word in words], "refusal": None}


def _certain(word: str, top: int) -> JsonObject:
    others = [_token(f"<{rank}>", _NEVER) for rank in range(2, top + 1)]
    return {**_token(word, 0.0), "top_logprobs": [_token(word, 0.0), *others][:top]}


def _token(word: str, logprob: float) -> JsonObject:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode())}


def _usage(plan: PlannedReply) -> JsonObject:
    usage: JsonObject = {
        "prompt_tokens": plan.prompt_words,
        "completion_tokens": plan.words,
        "total_tokens": plan.prompt_words + plan.words,
    }
    if plan.reasoning_words:
        usage["completion_tokens_details"] = {"reasoning_tokens": plan.reasoning_words}
    return usage


def _reply_id(model: str, plan: PlannedReply) -> str:
    said = (piece for segment in plan.segments for piece in segment.pieces)
    text = "\0".join((model, plan.digest, *said))
    return f"sim-{sha256(text.encode()).hexdigest()[:24]}"
