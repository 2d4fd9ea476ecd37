"""Converts complete replies to streams, and streams to complete replies.

streamed(dialect, whole)   a provider's reply -> its events
folded(client, stream)     a client's events  -> the complete reply
"""

import json
from collections.abc import Iterable
from typing import Any

Body = dict[str, Any]


def encoded(value: object) -> bytes:
    """Return JSON without spaces, as the gateway renders it."""
    return json.dumps(value, separators=(",", ":")).encode()


def streamed(dialect: str, whole: Body) -> list[Body]:
    """Return the stream events of a provider's reply."""
    return {"chat": _chat, "responses": _responses, "messages": _messages}[dialect](whole)


def _chat(whole: Body) -> list[Body]:
    rest = {name: value for name, value in whole.items() if name not in {"choices", "usage"}}
    chunks: list[Body] = []
    for choice in whole["choices"]:
        at = {"index": choice.get("index", 0)}
        for delta in _deltas(choice["message"]):
            said = {**at, "delta": delta, "finish_reason": None}
            said["logprobs"] = choice.get("logprobs") if "content" in delta else None
            chunks.append({**rest, "choices": [said]})
        reason = choice["finish_reason"]
        end: Body = {**at, "delta": {}, "finish_reason": reason, "logprobs": None}
        chunks.append({**rest, "choices": [end]})
    return [*chunks, {**rest, "choices": [], "usage": whole["usage"]}]


def _deltas(message: Body) -> list[Body]:
    """Return what a message says, thoughts first: what says one thought stands in one chunk."""
    thought = {name: value for name, value in message.items() if name.startswith("reasoning")}
    rest = [{name: _numbered(name, message[name])} for name in message if name not in thought]
    return [*([thought] if thought else []), *rest]


def _numbered(name: str, value: Any) -> Any:
    if name != "tool_calls":
        return value
    return [{"index": index, **call} for index, call in enumerate(value)]


def _responses(whole: Body) -> list[Body]:
    kind = f"response.{whole['status']}"
    start = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[Body] = [{"type": "response.created", "response": start}]
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item": item}
        begun: Body = {**item, "content": [], "summary": [], "arguments": "", "input": ""}
        events += [
            {**at, "type": "response.output_item.added", "item": begun},
            *(
                {**event, "output_index": index, "item_id": item.get("id")}
                for event in _inside(item)
            ),
            {**at, "type": "response.output_item.done"},
        ]
    return [*events, {"type": kind, "response": whole}]


_DELTAS = {
    "output_text": ("output_text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("reasoning_summary_text", "text"),
    "reasoning_text": ("reasoning_text", "text"),
}


def _inside(item: Body) -> Iterable[Body]:
    for place, number, kind in (
        ("summary", "summary_index", "reasoning_summary_part"),
        ("content", "content_index", "content_part"),
    ):
        for index, part in enumerate(item.get(place) or ()):
            name, text = _DELTAS[part["type"]]
            at = {number: index}
            more = {"logprobs": part["logprobs"]} if part.get("logprobs") else {}
            yield {"type": f"response.{kind}.added", **at, "part": {**part, text: ""}}
            yield {"type": f"response.{name}.delta", **at, "delta": part[text], **more}
            yield {"type": f"response.{name}.done", **at, text: part[text], **more}
            yield {"type": f"response.{kind}.done", **at, "part": part}
    if item["type"] == "function_call":
        name = "response.function_call_arguments"
        yield {"type": f"{name}.delta", "delta": item["arguments"]}
        yield {"type": f"{name}.done", "arguments": item["arguments"]}


def _messages(whole: Body) -> list[Body]:
    start: Body = {**whole, "content": [], "stop_reason": None, "stop_sequence": None}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": whole.get("stop_sequence")}
    blocks = [
        {**event, "index": index}
        for index, block in enumerate(whole["content"])
        for event in _block(block)
    ]
    return [
        {"type": "message_start", "message": start},
        *blocks,
        {"type": "message_delta", "delta": end, "usage": whole["usage"]},
        {"type": "message_stop"},
    ]


def _block(block: Body) -> list[Body]:
    empty: Body = {"text": "", "thinking": "", "signature": "", "input": {}}
    begun = {name: empty.get(name, value) for name, value in block.items()}
    names = sorted(_ADDED & block.keys())
    pieces: list[Body] = [
        {"type": f"{name}_delta", name: piece}
        for name in names
        for piece in (_halves(block[name]) if name == "signature" else [block[name]])
    ]
    pieces.sort(key=lambda piece: piece["type"] == "signature_delta")
    pieces += [{"type": "citations_delta", "citation": each} for each in block.get("citations", ())]
    if "input" in block:
        text = encoded(block["input"]).decode()
        pieces.append({"type": "input_json_delta", "partial_json": text})
    return [
        {"type": "content_block_start", "content_block": begun},
        *({"type": "content_block_delta", "delta": piece} for piece in pieces),
        {"type": "content_block_stop"},
    ]


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


_ADDED = {"text", "thinking", "signature"}


def folded(client: str, stream: list[Body]) -> Body:
    """Return the complete reply of a client's stream."""
    if client == "responses":
        return stream[-1]["response"]
    return _folded_message(stream) if client == "messages" else _folded_chat(stream)


def _folded_chat(stream: list[Body]) -> Body:
    choices: dict[int, Body] = {}
    for chunk in stream:
        for piece in chunk["choices"]:
            choice = choices.setdefault(piece["index"], {"index": piece["index"], "message": {}})
            _add(choice["message"], piece.get("delta", {}))
            _add(choice, {name: piece[name] for name in ("text", "logprobs") if piece.get(name)})
            ends = ("finish_reason", "native_finish_reason")
            choice |= {name: piece[name] for name in ends if piece.get(name)}
    return {**stream[0], "choices": list(choices.values()), "usage": stream[-1]["usage"]}


def _add(to: Body, more: Body) -> None:
    """Merge a delta: strings are joined, indexed items are merged by index."""
    for name, value in more.items():
        if isinstance(to.get(name), str) and isinstance(value, str) and name not in _ONCE:
            to[name] += value
        elif isinstance(value, list) and value and "index" in value[0]:
            own = to.setdefault(name, [])
            for each in value:
                if each["index"] == len(own):
                    own.append({})
                _add(own[each["index"]], each)
        elif isinstance(value, dict):
            to[name] = to.get(name) or {}
            _add(to[name], value)
        elif isinstance(value, list) and name in to:
            to[name] += value
        elif value is not None or name not in to:
            to[name] = value


_ONCE = {"type", "id", "role", "format"}


def _folded_message(stream: list[Body]) -> Body:
    message: Body = {**stream[0]["message"], "content": []}
    for event in stream:
        if event["type"] == "content_block_start":
            message["content"].append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            _grow(message["content"][-1], event["delta"])
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] = message["usage"] | event["usage"]
    for block in message["content"]:
        if isinstance(block.get("input"), str):
            block["input"] = json.loads(block["input"])
    return message


def _grow(block: Body, delta: Body) -> None:
    if delta["type"] == "input_json_delta":
        block["input"] = (block["input"] or "") + delta["partial_json"]
        return
    name = delta["type"].removesuffix("_delta")
    block[name] += delta[name]
