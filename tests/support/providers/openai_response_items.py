"""Validates the input items of OpenAI's responses API, and renders their text for an echo.

Source: https://platform.openai.com/docs/api-reference/responses/create (`input`),
https://platform.openai.com/docs/guides/reasoning (encrypted reasoning items).
"""

from __future__ import annotations

from typing import Any, Final, cast

from tests.support.providers.stub_text import (
    Attachment,
    JsonObject,
    attachment_from_url,
    is_token,
    join_parts,
)

_CACHE: Final = "prompt_cache_breakpoint"
_ITEMS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "message": ({"role", "content"}, {"id", "status", "phase"}),
    "function_call": (
        {"call_id", "name", "arguments"},
        {"id", "status", "namespace", "caller", "async"},
    ),
    "function_call_output": ({"call_id", "output"}, {"id", "status", "caller"}),
    "custom_tool_call": ({"call_id", "name", "input"}, {"id", "namespace", "caller", "async"}),
    "custom_tool_call_output": ({"call_id", "output"}, {"id", "caller"}),
    "reasoning": ({"id", "summary"}, {"encrypted_content", "content", "status"}),
    "item_reference": ({"id"}, set()),
}
"""The required and the optional fields by type."""
_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
}
_INPUT_PARTS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "input_text": ({"text"}, {_CACHE}),
    "input_image": (set(), {"image_url", "file_id", "detail", _CACHE}),
    "input_file": (set(), {"file_data", "file_url", "file_id", "filename", "detail", _CACHE}),
}
_OUTPUT_PARTS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "output_text": ({"text"}, {"annotations", "logprobs"}),
    "refusal": ({"refusal"}, set()),
}
_CALLS: Final = {"function_call", "custom_tool_call"}
_MOST_ID_LENGTH: Final = 64


class RejectedResponsesRequest(Exception):
    """The request is invalid; carries OpenAI's code, message and parameter."""

    def __init__(
        self, code: str | None, message: str, param: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.status = status


# --------------------------------------------------------------------------------------- checks


def check_fields(path: str, given: JsonObject, required: set[str], optional: set[str]) -> None:
    """Reject an object with a missing or an unknown parameter."""
    prefix = f"{path}." if path else ""
    for name in sorted(required - given.keys()):
        at = f"{prefix}{name}"
        raise RejectedResponsesRequest(
            "missing_required_parameter", f"Missing required parameter: '{at}'.", at
        )
    for name in sorted(given.keys() - required - optional):
        at = f"{prefix}{name}"
        raise RejectedResponsesRequest("unknown_parameter", f"Unknown parameter: '{at}'.", at)


def check_type(path: str, value: object, *kinds: type) -> None:
    """Reject a value of another type."""
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return
    names = " or ".join(_TYPE_NAMES[kind] for kind in kinds)
    got = _TYPE_NAMES.get(type(value), "null")
    message = f"Invalid type for '{path}': expected {names}, but got {got} instead."
    raise RejectedResponsesRequest("invalid_type", message, path)


_TYPE_NAMES: Final[dict[type, str]] = {
    str: "a string",
    dict: "an object",
    list: "an array",
    int: "an integer",
    float: "a decimal",
    bool: "a boolean",
}


def check_choice(path: str, value: object, known: set[str]) -> None:
    """Reject an unknown value."""
    if not isinstance(value, str) or value not in known:
        supported = ", ".join(f"'{each}'" for each in sorted(known))
        message = f"Invalid value: '{value}'. Supported values are: {supported}."
        raise RejectedResponsesRequest("invalid_value", message, path)


def check_input(value: object) -> list[JsonObject]:
    """Return the items; a string is one user message."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    check_type("input", value, str, list)
    listed = cast("list[Any]", value)
    if not listed:
        raise RejectedResponsesRequest("empty_array", "Invalid 'input': empty array.", "input")
    items = [_check_item(f"input[{at}]", item) for at, item in enumerate(listed)]
    _check_calls(items)
    return items


def _check_item(path: str, value: object) -> JsonObject:
    check_type(path, value, dict)
    item: JsonObject = {"type": "message"} | cast("JsonObject", value)
    kind: str = item["type"]
    check_choice(f"{path}.type", kind, set(_ITEMS))
    required, optional = _ITEMS[kind]
    check_fields(path, item, required | {"type"}, optional)
    _check_ids(path, kind, item)
    if kind == "message":
        _check_message(path, item)
    elif kind == "reasoning":
        _check_reasoning(path, item)
    elif kind == "item_reference":
        message = f"Item with id '{item['id']}' not found. Items are not persisted."
        raise RejectedResponsesRequest(None, message, "input", 404)
    elif kind in _CALLS:
        for name in ("name", "arguments" if kind == "function_call" else "input"):
            check_type(f"{path}.{name}", item[name], str)
    else:
        _check_content(f"{path}.output", item["output"], _INPUT_PARTS)
    return item


def _check_ids(path: str, kind: str, item: JsonObject) -> None:
    if (call := item.get("call_id")) is not None:
        check_type(f"{path}.call_id", call, str)
        if not 0 < len(call) <= _MOST_ID_LENGTH:
            message = f"Invalid '{path}.call_id': expected a string of 1 to {_MOST_ID_LENGTH}."
            raise RejectedResponsesRequest("string_above_max_length", message, f"{path}.call_id")
    prefix, own = _PREFIXES.get(kind), item.get("id")
    if prefix and own is not None and not str(own).startswith(prefix):
        message = f"Invalid '{path}.id': '{own}'. Expected an ID that begins with '{prefix}'."
        raise RejectedResponsesRequest("invalid_value", message, f"{path}.id")


def _check_message(path: str, item: JsonObject) -> None:
    check_choice(f"{path}.role", item["role"], {"user", "assistant", "system", "developer"})
    known = _OUTPUT_PARTS if item["role"] == "assistant" else _INPUT_PARTS
    _check_content(f"{path}.content", item["content"], known)


def _check_content(path: str, content: object, known: dict[str, tuple[set[str], set[str]]]) -> None:
    check_type(path, content, str, list)
    if isinstance(content, str):
        return
    for at, part in enumerate(cast("list[Any]", content)):
        here = f"{path}[{at}]"
        check_type(here, part, dict)
        check_choice(f"{here}.type", part.get("type"), set(known))
        required, optional = known[part["type"]]
        check_fields(here, part, required | {"type"}, optional)
        _check_part(here, part)


def _check_part(path: str, part: JsonObject) -> None:
    for name in ("text", "refusal", "image_url", "file_data", "file_url"):
        if part.get(name) is not None:
            check_type(f"{path}.{name}", part[name], str)
    if part["type"] in {"input_image", "input_file"}:
        _attachment(path, part)


def _check_reasoning(path: str, item: JsonObject) -> None:
    check_type(f"{path}.summary", item["summary"], list)
    for at, part in enumerate(item["summary"]):
        check_type(f"{path}.summary[{at}]", part, dict)
        check_fields(f"{path}.summary[{at}]", part, {"type", "text"}, set())
    if not is_token("enc", item.get("encrypted_content")):
        message = f"The encrypted content for item {item['id']} could not be verified."
        raise RejectedResponsesRequest("invalid_encrypted_content", message)


def _check_calls(items: list[JsonObject]) -> None:
    """Reject an output without a call before it, and a call without an output after it."""
    waiting: dict[str, str] = {}
    for item in items:
        kind: str = item["type"]
        if kind in _CALLS:
            waiting[item["call_id"]] = kind
        elif kind.endswith("_output") and waiting.pop(item["call_id"], "") + "_output" != kind:
            what = "function" if kind == "function_call_output" else "custom tool"
            message = f"No tool call found for {what} call output with call_id {item['call_id']}."
            raise RejectedResponsesRequest(None, message, "input")
    for call in waiting:
        raise RejectedResponsesRequest(
            None, f"No tool output found for function call {call}.", "input"
        )


# --------------------------------------------------------------------------------- echoed text


def echoed_text(item: JsonObject) -> str:
    """Return the text of an item in an echo; empty for reasoning and calls."""
    content = item.get("output" if item["type"].endswith("_output") else "content") or ""
    if item["type"] == "reasoning":
        return ""
    return content if isinstance(content, str) else join_parts(_part_says(part) for part in content)


def _part_says(part: JsonObject) -> str:
    if part["type"] in {"input_image", "input_file"}:
        return _attachment("input", part)
    return part.get("text") or part.get("refusal") or ""


def _attachment(path: str, part: JsonObject) -> Attachment:
    kind = "image" if part["type"] == "input_image" else "document"
    found = [part.get(name) for name in ("image_url", "file_data", "file_url", "file_id")]
    given = [each for each in found if each]
    if len(given) != 1:
        at = f"{path}.{'image_url' if kind == 'image' else 'file_data'}"
        message = f"Missing required parameter: '{at}'."
        raise RejectedResponsesRequest("missing_required_parameter", message, at)
    url: str = given[0]
    if url in {part.get("image_url"), part.get("file_url")} and not url.startswith(
        ("https://", "http://", "data:")
    ):
        raise RejectedResponsesRequest(
            "invalid_value", f"Invalid '{path}': expected a valid URL.", path
        )
    try:
        return attachment_from_url(kind, url)
    except ValueError:
        raise RejectedResponsesRequest(
            "invalid_value", f"Invalid '{path}': invalid base64.", path
        ) from None
