"""Validates requests to the Anthropic stub: as strict as Anthropic where adapters go wrong.

    headers ─▶ key, version ─▶ body ─▶ fields ─▶ blocks ─▶ order of messages ─▶ tools ─▶ thinking

Source: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/versioning,
https://platform.claude.com/docs/en/api/migration-2026-10-21,
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking,
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tests.support.providers.anthropic_blocks import (
    RejectedMessagesRequest,
    check_block,
    check_content,
    check_fields,
    check_list,
    check_object,
    check_text,
    echoed_text,
)
from tests.support.providers.anthropic_tools import check_tool_choice, check_tools
from tests.support.providers.stub_text import JsonObject, join_parts, words

if TYPE_CHECKING:
    from collections.abc import Mapping

_LATEST: Final = "2026-10-21"
_VERSIONS: Final = {"2023-01-01", "2023-06-01", _LATEST}
_SAMPLING: Final = {"temperature", "top_k", "top_p"}
"""Removed in the latest version."""
_COUNTED: Final = {
    *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"),
    *("cache_control", "speed", "user_profile_id", "workspace_id"),
}
_FIELDS: Final = _COUNTED | {
    *("max_tokens", "metadata", "stop_sequences", "stream", "temperature", "top_k", "top_p"),
    *("service_tier", "container", "inference_geo", "diagnostics"),
}
_BETA_FIELDS: Final = {"context_management", "mcp_servers", "output_format"}
_LEAST_BUDGET: Final = 1024
_LEAST_TOP_P: Final = 0.95
_MOST_CACHE_MARKS: Final = 4


class CheckedMessagesRequest:
    """A request that passed Anthropic's checks."""

    def __init__(self, headers: Mapping[str, str], body: object, *, counts: bool = False) -> None:
        latest = _version(headers) == _LATEST
        if not isinstance(body, dict):
            raise RejectedMessagesRequest("The request body is not valid JSON")
        fields = self.fields = cast("JsonObject", body)
        beta = _BETA_FIELDS if headers.get("anthropic-beta") else set[str]()
        known = (_COUNTED if counts else _FIELDS) - (_SAMPLING if latest else set[str]())
        _check_top(fields, known | beta, counts=counts)
        self.model: str = fields["model"]
        self.streams: bool = fields.get("stream") is True
        self.system = _check_system(fields.get("system"))
        self.messages = _check_messages(fields["messages"])
        if latest:
            _check_no_citations(self.messages)
        self.tools = check_tools(fields)
        self.forced_tool = check_tool_choice(fields)
        self.thinks = _check_thinking(fields, self.messages)
        _check_cache_marks(fields)

    def input_tokens(self) -> int:
        """Return the number of words in the prompt."""
        texts = (echoed_text(block) for message in self.messages for block in message["content"])
        return sum(words(text) for text in (*texts, self.system))

    def last_user_text(self) -> str:
        """Return the text of the last user message; tool results are separated by a space."""
        users = [message for message in self.messages if message["role"] == "user"]
        blocks: list[JsonObject] = users[-1]["content"]
        results = [echoed_text(block) for block in blocks if block["type"] == "tool_result"]
        rest = join_parts(echoed_text(block) for block in blocks if block["type"] != "tool_result")
        return " ".join(text for text in (*results, rest) if text)

    def has_results(self) -> bool:
        """Return whether the last message has tool results."""
        return any(block["type"] == "tool_result" for block in self.messages[-1]["content"])

    def prefill(self) -> str:
        """Return the prefilled text that the response must continue."""
        last = self.messages[-1]
        if last["role"] != "assistant":
            return ""
        return join_parts(echoed_text(block) for block in last["content"])

    def schema(self) -> JsonObject | None:
        """Return the JSON schema that the response must match."""
        config: JsonObject = self.fields.get("output_config") or {}
        form: JsonObject = config.get("format") or {}
        return form.get("schema")


# ------------------------------------------------------------------------------ head and fields


def _version(headers: Mapping[str, str]) -> str:
    """Return the API version of an authenticated request."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if not headers.get("x-api-key") and not (scheme.lower() == "bearer" and bearer):
        raise RejectedMessagesRequest("x-api-key header is required", 401)
    version = headers.get("anthropic-version", "")
    if not version:
        raise RejectedMessagesRequest("anthropic-version: header is required")
    if version not in _VERSIONS:
        raise RejectedMessagesRequest(f'anthropic-version: "{version}" is not a valid version')
    return version


def _check_top(fields: JsonObject, known: set[str], *, counts: bool) -> None:
    required = {"model", "messages"} if counts else {"model", "messages", "max_tokens"}
    for name in sorted(required - fields.keys()):
        raise RejectedMessagesRequest(f"{name}: Field required")
    for name in sorted(fields.keys() - known):
        raise RejectedMessagesRequest(f"{name}: Extra inputs are not permitted")
    check_text("model", fields["model"])
    _check_number(fields, "max_tokens", 1, None, whole=True)
    _check_number(fields, "temperature", 0, 1)
    _check_number(fields, "top_p", 0, 1)
    _check_number(fields, "top_k", 0, None, whole=True)
    if not isinstance(fields.get("stream", False), bool):
        raise RejectedMessagesRequest("stream: Input should be a valid boolean")
    for at, stop in enumerate(check_list("stop_sequences", fields.get("stop_sequences", []))):
        if not check_text(f"stop_sequences.{at}", stop).strip():
            raise RejectedMessagesRequest(
                "stop_sequences: each stop sequence must contain non-whitespace"
            )
    metadata = check_object("metadata", fields.get("metadata", {}))
    check_fields("metadata", metadata, set(), {"user_id"})
    _check_output_config(check_object("output_config", fields.get("output_config", {})))


def _check_number(
    fields: JsonObject, name: str, least: float, most: float | None, *, whole: bool = False
) -> None:
    if name not in fields:
        return
    value: Any = fields[name]
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        kind = "integer" if whole else "number"
        raise RejectedMessagesRequest(f"{name}: Input should be a valid {kind}")
    if value < least:
        raise RejectedMessagesRequest(f"{name}: Input should be greater than or equal to {least}")
    if most is not None and value > most:
        raise RejectedMessagesRequest(f"{name}: range: {least}..{most}")


def _check_output_config(config: JsonObject) -> None:
    check_fields("output_config", config, set(), {"effort", "format", "task_budget"})
    if config.get("effort") not in {None, "low", "medium", "high", "xhigh", "max"}:
        raise RejectedMessagesRequest(
            "output_config.effort: Input should be 'low', 'medium', 'high' or 'max'"
        )
    if config.get("format") is None:
        return
    form = check_object("output_config.format", config["format"])
    check_fields("output_config.format", form, {"type", "schema"}, set())
    if form["type"] != "json_schema":
        raise RejectedMessagesRequest("output_config.format.type: Input should be 'json_schema'")
    check_object("output_config.format.schema", form["schema"])


def _check_system(system: object) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    texts: list[str] = []
    for at, block in enumerate(check_list("system", system)):
        if check_object(f"system.{at}", block).get("type") != "text":
            raise RejectedMessagesRequest(f"system.{at}.type: Input should be 'text'")
        texts.append(check_block(f"system.{at}", "user", block)["text"])
    return " ".join(texts)


# ------------------------------------------------------------------------------------- messages


def _check_messages(value: object) -> list[JsonObject]:
    """Return the messages with block content; consecutive messages of one role are merged."""
    listed = check_list("messages", value)
    if not listed:
        raise RejectedMessagesRequest("messages: at least one message is required")
    merged: list[JsonObject] = []
    for at, each in enumerate(listed):
        message = _check_message(at, each, last=at == len(listed) - 1)
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += message["content"]
        else:
            merged.append(message)
    if merged[0]["role"] != "user":
        raise RejectedMessagesRequest('messages: first message must use the "user" role')
    _check_last(merged[-1])
    _check_calls(merged)
    return merged


def _check_message(at: int, value: object, *, last: bool) -> JsonObject:
    path = f"messages.{at}"
    message = check_object(path, value)
    check_fields(path, message, {"role", "content"}, set())
    role = message["role"]
    if role == "system":
        raise RejectedMessagesRequest(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` '
            'parameter, not "system" as an input message role.'
        )
    if role not in {"user", "assistant"}:
        raise RejectedMessagesRequest(f"{path}.role: Input should be 'user' or 'assistant'")
    if not message["content"] and not (last and role == "assistant"):
        raise RejectedMessagesRequest(
            f"{path}: all messages must have non-empty content except for the optional final "
            "assistant message"
        )
    content = check_content(f"{path}.content", role, message["content"] or [])
    return {"role": role, "content": list(content)}


def _check_no_citations(messages: list[JsonObject]) -> None:
    """Reject citations in user messages, as the latest version does."""
    for at, message in enumerate(messages):
        for block in message["content"] if message["role"] == "user" else ():
            if block["type"] == "text" and block.get("citations"):
                raise RejectedMessagesRequest(
                    f"messages.{at}.content: `citations` not allowed in user messages"
                )


def _check_last(message: JsonObject) -> None:
    if message["role"] != "assistant" or not message["content"]:
        return
    block = message["content"][-1]
    if block["type"] == "text" and block["text"] != block["text"].rstrip():
        raise RejectedMessagesRequest(
            "messages: final assistant content cannot end with trailing whitespace"
        )


def _check_calls(messages: list[JsonObject]) -> None:
    """Reject a call without its result in the next message, and a result without its call."""
    known: set[str] = set()
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        _check_results(at, message, results, open_calls)
        open_calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        if known & set(open_calls) or len(set(open_calls)) < len(open_calls):
            raise RejectedMessagesRequest(f"messages.{at}: `tool_use` ids must be unique")
        known |= set(open_calls)
    if open_calls:
        raise RejectedMessagesRequest(_unanswered(len(messages) - 1, open_calls))


def _check_results(at: int, message: JsonObject, results: list[str], open_calls: list[str]) -> None:
    for result in results:
        if result not in open_calls:
            raise RejectedMessagesRequest(
                f"messages.{at}.content: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{result}. Each `tool_result` block must have a corresponding `tool_use` block "
                "in the previous message."
            )
        if results.count(result) > 1:
            raise RejectedMessagesRequest(
                f"messages.{at}.content: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {result}"
            )
    first = [block["type"] for block in message["content"][: len(results)]]
    missing = [call for call in open_calls if call not in results]
    if missing or set(first) - {"tool_result"}:
        raise RejectedMessagesRequest(_unanswered(at - 1, missing or open_calls))


def _unanswered(at: int, calls: list[str]) -> str:
    return (
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(calls)}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the next message."
    )


# ------------------------------------------------------------------------- thinking and caching


def _check_thinking(fields: JsonObject, messages: list[JsonObject]) -> bool:
    """Return whether thinking is enabled; reject parameters that conflict with it."""
    thinking = check_object("thinking", fields.get("thinking") or {"type": "disabled"})
    kind = thinking.get("type")
    if kind not in {"enabled", "adaptive", "between_tools", "disabled"}:
        raise RejectedMessagesRequest(
            f"thinking: Input tag '{kind}' does not match any of the expected tags"
        )
    required = {"type", "budget_tokens"} if kind == "enabled" else {"type"}
    display = {"display"} if kind in {"enabled", "adaptive"} else set[str]()
    check_fields(f"thinking.{kind}", thinking, required, display)
    if kind == "enabled":
        _check_budget(thinking["budget_tokens"], fields)
        _check_thought_kept(messages)
    if kind not in {"enabled", "adaptive"}:
        return False
    if fields.get("temperature", 1) != 1:
        raise RejectedMessagesRequest(
            "`temperature` may only be set to 1 when thinking is enabled."
        )
    if "top_k" in fields:
        raise RejectedMessagesRequest("`top_k` must be unset when thinking is enabled.")
    if fields.get("top_p", 1) < _LEAST_TOP_P:
        raise RejectedMessagesRequest(
            "`top_p` must be greater than or equal to 0.95 when thinking is enabled."
        )
    choice: JsonObject = fields.get("tool_choice") or {}
    if choice.get("type") in {"any", "tool"}:
        raise RejectedMessagesRequest(
            "Thinking may not be enabled when tool_choice forces tool use."
        )
    if messages[-1]["role"] == "assistant":
        raise RejectedMessagesRequest(
            "messages: a reply cannot be prefilled when thinking is enabled"
        )
    return True


def _check_budget(budget: object, fields: JsonObject) -> None:
    path = "thinking.enabled.budget_tokens"
    if not isinstance(budget, int):
        raise RejectedMessagesRequest(f"{path}: Input should be a valid integer")
    if budget < _LEAST_BUDGET:
        raise RejectedMessagesRequest(
            f"{path}: Input should be greater than or equal to {_LEAST_BUDGET}"
        )
    if budget >= fields.get("max_tokens", budget + 1):
        raise RejectedMessagesRequest("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_thought_kept(messages: list[JsonObject]) -> None:
    """Reject tool results whose turn lost its leading thinking block.

    Source: https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking (preserving
    thinking blocks); adaptive thinking requires none.
    """
    at = len(messages) - 1
    while at > 1 and messages[at]["content"][0]["type"] == "tool_result":
        at -= 2
    if at == len(messages) - 1:
        return
    kind = messages[at + 1]["content"][0]["type"]
    if kind not in {"thinking", "redacted_thinking"}:
        raise RejectedMessagesRequest(
            f"messages.{at + 1}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{kind}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block."
        )


def _check_cache_marks(fields: JsonObject) -> None:
    marks = _cache_marks(fields)
    for mark in marks:
        check_fields("cache_control", check_object("cache_control", mark), {"type"}, {"ttl"})
        if mark["type"] != "ephemeral" or mark.get("ttl", "5m") not in {"5m", "1h"}:
            raise RejectedMessagesRequest(
                "cache_control: Input tag does not match any of the expected tags"
            )
    if len(marks) > _MOST_CACHE_MARKS:
        raise RejectedMessagesRequest(
            f"A maximum of {_MOST_CACHE_MARKS} blocks with cache_control may be provided. "
            f"Found {len(marks)}."
        )


def _cache_marks(fields: JsonObject) -> list[Any]:
    """Return every `cache_control` at any depth, except within tool inputs and schemas."""
    found: list[Any] = []
    waiting: list[Any] = [fields]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += cast("list[Any]", value)
        elif isinstance(value, dict):
            inner = cast("JsonObject", value)
            found += [inner["cache_control"]] if inner.get("cache_control") is not None else []
            waiting += [inner[key] for key in inner if key not in _FREE]
    return found


_FREE: Final = {"cache_control", "input", "input_schema", "output_config", "metadata"}
