"""The choices of a streamed chat, joined as a client joins them."""

from typing import Any


def choices_of(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices of a stream's chunks."""
    choices: dict[int, dict[str, Any]] = {}
    for choice in [each for chunk in parts for each in chunk["choices"]]:
        _add(choices.setdefault(choice["index"], _blank(choice["index"])), choice)
    return [choices[index] for index in sorted(choices)]


def _blank(index: int) -> dict[str, Any]:
    message_ = {"role": "assistant", "content": None, "refusal": None}
    return {"index": index, "message": message_, "logprobs": None, "finish_reason": None}


def _add_detail(details: list[dict[str, Any]], detail: dict[str, Any]) -> None:
    place = (detail["type"], detail.get("index"))
    known = next((each for each in details if (each["type"], each.get("index")) == place), None)
    if known is None:
        details.append({**detail})
    else:
        text = (known.get("text") or "") + (detail.get("text") or "")
        known |= detail | {"text": text}


def _add(reply: dict[str, Any], choice: dict[str, Any]) -> None:
    assert reply["finish_reason"] is None
    reply["finish_reason"] = choice["finish_reason"]
    so_far, delta = reply["message"], choice["delta"]
    for name in ("content", "refusal", "reasoning", "reasoning_content"):
        if delta.get(name) is not None:
            so_far[name] = (so_far.get(name) or "") + delta[name]
    kept = delta.keys() & {"extra_content", "provider_specific_fields", "thinking_blocks"}
    so_far |= {name: delta[name] for name in kept}
    if choice["logprobs"] is not None:
        logprobs = reply["logprobs"] or {"content": [], "refusal": None}
        reply["logprobs"] = logprobs | {
            "content": logprobs["content"] + choice["logprobs"]["content"]
        }
    for detail in delta.get("reasoning_details", ()):
        _add_detail(so_far.setdefault("reasoning_details", []), detail)
    for call in delta.get("tool_calls", ()):
        calls = so_far.setdefault("tool_calls", [])
        if call["index"] == len(calls):
            calls.append({name: call[name] for name in call if name != "index"})
        else:
            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
