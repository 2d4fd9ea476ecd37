"""Validates requests to the stub of OpenAI's responses API, as strictly as OpenAI.

Source: https://platform.openai.com/docs/api-reference/responses/create.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from tests.support.providers.openai_response_items import (
    RejectedResponsesRequest,
    check_choice,
    check_fields,
    check_input,
    check_type,
    echoed_text,
)
from tests.support.providers.stub_text import JsonObject, words

_FIELDS: Final = {
    *("background", "context_management", "conversation", "include", "instructions"),
    *("max_output_tokens", "max_tool_calls", "metadata", "moderation", "parallel_tool_calls"),
    *("previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store"),
    *("stream", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs"),
    *("top_p", "truncation", "user", "access_programs", "image"),
}
_INCLUDES: Final = {
    *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
    *("message.input_image.image_url", "computer_call_output.output.image_url"),
    *("code_interpreter_call.outputs", "reasoning.encrypted_content"),
    "message.output_text.logprobs",
}
_EFFORTS: Final = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}
_SUMMARIES: Final = {"auto", "concise", "detailed"}
_TOOLS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "function": (
        {"name"},
        {
            *("parameters", "strict", "description", "allowed_callers", "defer_loading"),
            "output_schema",
        },
    ),
    "custom": ({"name"}, {"description", "format", "allowed_callers", "defer_loading"}),
}
_SERVER_TOOLS: Final = {
    *("web_search", "web_search_preview", "file_search", "code_interpreter", "computer_use"),
    *("image_generation", "mcp", "local_shell", "shell", "apply_patch", "namespace"),
}
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LEAST_OUTPUT: Final = 16


class CheckedResponsesRequest:
    """A request that passed OpenAI's checks."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise RejectedResponsesRequest(
                None, "We could not parse the JSON body of your request."
            )
        fields = self.fields = _without_nulls(cast("JsonObject", body))
        check_fields("", fields, {"model", "input"}, _FIELDS)
        check_type("model", fields["model"], str)
        _check_stored(fields)
        _check_options(fields)
        self.model: str = fields["model"]
        self.streams: bool = fields.get("stream") is True
        self.items = check_input(fields["input"])
        self.tools = _check_tools(fields)
        self.forced_tool = _check_tool_choice(fields, self.tools)
        self.reasoning: JsonObject = fields.get("reasoning") or {}
        self.includes: list[str] = fields.get("include") or []

    def input_tokens(self) -> int:
        """Return the number of words in the prompt."""
        instructions: str = self.fields.get("instructions") or ""
        return sum(
            words(text) for text in (instructions, *(echoed_text(item) for item in self.items))
        )

    def last_user_text(self) -> str:
        """Return the last user text, or the tool results since."""
        results = [echoed_text(item) for item in self.items if item["type"].endswith("_output")]
        if self.has_results():
            return " ".join(results[-self._trailing_results() :])
        users = [item for item in self.items if item.get("role") == "user"]
        return echoed_text(users[-1]) if users else ""

    def has_results(self) -> bool:
        """Return whether the last item is a tool result."""
        return self._trailing_results() > 0

    def schema(self) -> JsonObject | None:
        """Return the JSON schema that the response must match."""
        text: JsonObject = self.fields.get("text") or {}
        form: JsonObject = text.get("format") or {}
        return {"type": "object"} if form.get("type") == "json_object" else form.get("schema")

    def _trailing_results(self) -> int:
        count = 0
        for item in reversed(self.items):
            if not item["type"].endswith("_output"):
                break
            count += 1
        return count


def _without_nulls(fields: JsonObject) -> JsonObject:
    """Return the non-null fields; null means absent."""
    return {name: value for name, value in fields.items() if value is not None}


def _check_stored(fields: JsonObject) -> None:
    """Reject parameters that need stored responses."""
    if fields.get("store"):
        raise RejectedResponsesRequest(
            "unsupported_value", "Nothing is stored here: 'store' must be false.", "store"
        )
    if fields.get("background"):
        raise RejectedResponsesRequest(
            "unsupported_value", "Background mode needs 'store'.", "background"
        )
    if "previous_response_id" in fields:
        previous = fields["previous_response_id"]
        message = f"Previous response with id '{previous}' not found."
        raise RejectedResponsesRequest(
            "previous_response_not_found", message, "previous_response_id"
        )
    if "conversation" in fields:
        raise RejectedResponsesRequest(None, "Conversation not found.", "conversation", 404)


def _check_options(fields: JsonObject) -> None:
    for name in ("stream", "parallel_tool_calls"):
        check_type(name, fields.get(name, False), bool)
    if "stream_options" in fields and not fields.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise RejectedResponsesRequest(None, message, "stream_options")
    check_type("instructions", fields.get("instructions", ""), str)
    _check_range(fields, "temperature", 2)
    _check_range(fields, "top_p", 1)
    limit = fields.get("max_output_tokens", _LEAST_OUTPUT)
    check_type("max_output_tokens", limit, int)
    if limit < _LEAST_OUTPUT:
        message = (
            "Invalid 'max_output_tokens': integer below minimum value. "
            f"Expected a value >= {_LEAST_OUTPUT}, but got {limit} instead."
        )
        raise RejectedResponsesRequest("integer_below_min_value", message, "max_output_tokens")
    for at, include in enumerate(fields.get("include", [])):
        check_choice(f"include[{at}]", include, _INCLUDES)
    _check_reasoning(fields.get("reasoning", {}))
    _check_text(fields.get("text", {}))


def _check_range(fields: JsonObject, name: str, most: float) -> None:
    value: Any = fields.get(name, 0)
    check_type(name, value, int, float)
    if not 0 <= value <= most:
        message = f"Invalid '{name}': decimal out of range. Expected 0 to {most}."
        raise RejectedResponsesRequest("decimal_above_max_value", message, name)


def _check_reasoning(value: object) -> None:
    check_type("reasoning", value, dict)
    reasoning = _without_nulls(cast("JsonObject", value))
    known = {"effort", "summary", "generate_summary", "context", "mode"}
    check_fields("reasoning", reasoning, set(), known)
    check_choice("reasoning.effort", reasoning.get("effort", "none"), _EFFORTS)
    check_choice("reasoning.summary", reasoning.get("summary", "auto"), _SUMMARIES)


def _check_text(value: object) -> None:
    check_type("text", value, dict)
    text = cast("JsonObject", value)
    check_fields("text", text, set(), {"format", "verbosity"})
    form: JsonObject = text.get("format") or {"type": "text"}
    check_type("text.format", form, dict)
    check_choice("text.format.type", form.get("type"), {"text", "json_object", "json_schema"})
    schema = form["type"] == "json_schema"
    required = {"name", "schema"} if schema else set[str]()
    check_fields("text.format", form, required | {"type"}, {"description", "strict"})
    if schema:
        check_type("text.format.schema", form["schema"], dict)
        _check_strict("text.format.schema", str(form["name"]), form, form["schema"])


# --------------------------------------------------------------------------------------- tools


def _check_tools(fields: JsonObject) -> list[JsonObject]:
    check_type("tools", fields.get("tools", []), list)
    listed: list[JsonObject] = fields.get("tools", [])
    for at, tool in enumerate(listed):
        path = f"tools[{at}]"
        check_type(path, tool, dict)
        check_choice(f"{path}.type", tool.get("type"), _SERVER_TOOLS | set(_TOOLS))
        if tool["type"] in _SERVER_TOOLS:
            continue
        required, optional = _TOOLS[tool["type"]]
        check_fields(path, tool, required | {"type"}, optional)
        if not _NAME.fullmatch(str(tool["name"])):
            message = f"Invalid '{path}.name': string does not match pattern '^{_NAME.pattern}$'."
            raise RejectedResponsesRequest("invalid_value", message, f"{path}.name")
        if tool.get("parameters") is not None:
            check_type(f"{path}.parameters", tool["parameters"], dict)
            _check_strict(f"{path}.parameters", tool["name"], tool, tool["parameters"])
    return [tool for tool in listed if tool["type"] in _TOOLS]


def _check_strict(path: str, name: str, tool: JsonObject, schema: JsonObject) -> None:
    """Reject a strict schema that OpenAI does not support.

    Source: https://platform.openai.com/docs/guides/structured-outputs (supported schemas).
    """
    if tool.get("strict") is not True:
        return
    problem = ""
    if schema.get("additionalProperties") is not False:
        problem = "'additionalProperties' is required to be supplied and to be false."
    elif set(schema.get("properties") or ()) - set(schema.get("required") or ()):
        problem = "'required' is required to be supplied and to name every key in properties."
    if problem:
        message = f"Invalid schema for '{name}': In context=(), {problem}"
        raise RejectedResponsesRequest("invalid_function_parameters", message, path)


def _check_tool_choice(fields: JsonObject, tools: list[JsonObject]) -> str | None:
    """Return the name of the tool that must be called."""
    choice = fields.get("tool_choice", "auto")
    if isinstance(choice, str):
        check_choice("tool_choice", choice, {"auto", "none", "required"})
        return None
    check_type("tool_choice", choice, str, dict)
    kind = choice.get("type")
    check_choice("tool_choice.type", kind, _SERVER_TOOLS | {"function", "custom", "allowed_tools"})
    if kind not in _TOOLS:
        return None
    check_fields("tool_choice", choice, {"type", "name"}, set())
    if choice["name"] not in [tool["name"] for tool in tools if tool["type"] == kind]:
        message = f"Tool choice '{choice['name']}' not found in 'tools' parameter."
        raise RejectedResponsesRequest(None, message, "tool_choice")
    return choice["name"]
