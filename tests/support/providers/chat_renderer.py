"""Writes what a stub says as OpenAI's chat completions and their chunks.

Source: OpenAI API reference, "The chat completion object", "The chat completion chunk object".
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from tests.support.providers import openai_errors
from tests.support.providers.stub_reply import Said, in_fives
from tests.support.providers.stub_text import JsonObject, pieces, signed

DONE: Final = b"data: [DONE]\n\n"
framing: Final = openai_errors.FRAMING
error = openai_errors.error


def unknown(model: str) -> bytes:
    return error(404, f"The model `{model}` does not exist or you do not have access to it.")


def whole(said: Said) -> bytes:
    message: JsonObject = {"role": "assistant", "content": said.text, "refusal": None}
    message["annotations"] = []
    if said.refuses:
        message |= {"content": None, "refusal": said.text}
    if said.calls:
        calls = [_call(at, said, whole=True) for at in range(len(said.calls))]
        message |= {"content": said.text or None, "tool_calls": calls}
    if said.thought and said.sealed:
        detail = _detail(text=said.thought, signature=signed("sig", said.thought))
        message |= {"reasoning": said.thought, "reasoning_details": [detail]}
    elif said.thought:
        message |= {"reasoning_content": said.thought}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _end(said)}
    more = {"choices": [choice], "usage": _usage(said)}
    return msgspec.json.encode(_envelope(said, "chat.completion") | more)


def events(said: Said) -> list[bytes]:
    """Return the events of the stream, up to `[DONE]`; with usage where the request wants it."""
    options: JsonObject = said.asked.get("stream_options") or {}
    counts = options.get("include_usage") is True
    null = {"usage": None} if counts else {}
    choice: JsonObject = {"index": 0, "logprobs": None, "finish_reason": None}
    choices = [choice | {"delta": delta} for delta in _deltas(said)]
    choices.append(choice | {"delta": {}, "finish_reason": _end(said)})
    chunks: list[JsonObject] = [{"choices": [each]} | null for each in choices]
    chunks += [{"choices": [], "usage": _usage(said)}] * counts
    envelope = _envelope(said, "chat.completion.chunk")
    return [*(b"data: %b\n\n" % msgspec.json.encode(envelope | each) for each in chunks), DONE]


def failure(_said: Said, _at: int) -> bytes:
    return b"data: %b\n\n" % openai_errors.error_body(500)


def _deltas(said: Said) -> Iterator[JsonObject]:
    key = "refusal" if said.refuses else "content"
    empty = None if said.calls and not said.text else ""
    yield {"role": "assistant", "content": None, "refusal": None} | {key: empty}
    for piece in pieces(said.thought):
        if said.sealed:
            yield {"reasoning": piece, "reasoning_details": [_detail(text=piece)]}
        else:
            yield {"reasoning_content": piece}
    if said.thought and said.sealed:
        yield {"reasoning_details": [_detail(signature=signed("sig", said.thought))]}
    yield from ({key: piece} for piece in pieces(said.text))
    for at in range(len(said.calls)):
        yield {"tool_calls": [{"index": at} | _call(at, said, whole=False)]}
    split = [in_fives(call.arguments) for call in said.calls]
    for number in range(max(map(len, split), default=0)):  # the calls' pieces in turn
        for at, parts in enumerate(split):
            if number < len(parts):
                yield {"tool_calls": [{"index": at, "function": {"arguments": parts[number]}}]}


def _call(at: int, said: Said, *, whole: bool) -> JsonObject:
    call = said.calls[at]
    function = {"name": call.name, "arguments": call.arguments if whole else ""}
    return {"id": f"call_{at + 1}", "type": "function", "function": function}


def _detail(**fields: str) -> JsonObject:
    """Return a reasoning detail.

    Source: https://openrouter.ai/docs/use-cases/reasoning-tokens.
    """
    return {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0} | fields


def _end(said: Said) -> str:
    return "tool_calls" if said.calls else "length" if said.cut else "stop"


def _envelope(said: Said, kind: str) -> JsonObject:
    return {
        "id": "chatcmpl-tollhouse",
        "object": kind,
        "created": openai_errors.CREATED,
        "model": said.asked["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_tollhouse",
    }


def _usage(said: Said) -> JsonObject:
    used = said.used
    prompt = used.fresh + used.read
    return {
        "prompt_tokens": prompt,
        "completion_tokens": used.output,
        "total_tokens": prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": used.thinking,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
