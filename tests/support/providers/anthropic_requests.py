"""Checks requests to the Anthropic stub: their fields by the published types, the rest here.

Source: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/versioning,
https://platform.claude.com/docs/en/api/migration-2026-10-21,
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking,
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview.
"""

from collections.abc import Mapping
from typing import Final, cast

from tests.support.providers.published import check_message
from tests.support.providers.stub_reply import StubRequest, Tool
from tests.support.providers.stub_text import (
    Attachment,
    JsonObject,
    attached,
    attached_from_url,
    is_token,
    join_parts,
    require,
    signed,
    words,
)

_BETA_FIELDS: Final = {"context_management", "mcp_servers", "output_format"}
_ONLY_FROM: Final = {
    **dict.fromkeys(("image", "tool_result"), "user"),
    **dict.fromkeys(("thinking", "redacted_thinking", "tool_use"), "assistant"),
}
_LEAST_BUDGET: Final = 1024
_LEAST_TOP_P: Final = 0.95


class MessagesRequest(StubRequest):
    """A request that passed Anthropic's checks."""

    def __init__(self, headers: Mapping[str, str], body: object, *, counts: bool = False) -> None:
        _check_headers(headers)
        require(isinstance(body, dict), "The request body is not valid JSON")
        fields = self.fields = cast("JsonObject", body)
        beta = _BETA_FIELDS if headers.get("anthropic-beta") else set[str]()
        known = {name: value for name, value in fields.items() if name not in beta}
        tools: list[JsonObject] = fields.get("tools") or []
        own = [tool for tool in tools if tool.get("type", "custom") == "custom"]
        check_message(known | ({"tools": own} if tools else {}), counts=counts)
        self.model = fields["model"]
        self.streams = fields.get("stream") is True
        self.system = _system_text(fields.get("system"))
        self.messages = _merged_messages(fields["messages"])
        _check_calls(self.messages)
        self.tools = [Tool(tool["name"], tool["input_schema"]) for tool in own]
        self.forced_tool = _forced_tool(fields, tools)
        choice: JsonObject = fields.get("tool_choice") or {}
        self.may_call = choice.get("type") != "none"
        self.parallel = not choice.get("disable_parallel_tool_use")
        self.thinks = _check_thinking(fields, self.messages)
        self.shows_thought = (fields.get("thinking") or {}).get("display") != "omitted"
        self.limit = fields.get("max_tokens")
        self.stops = fields.get("stop_sequences") or []

    def input_tokens(self) -> int:
        texts = (echoed_text(block) for message in self.messages for block in message["content"])
        return sum(words(text) for text in (*texts, self.system))

    def last_said(self) -> str:
        """Return the last user text, after the prefill; tool results are separated by a space."""
        users = [message for message in self.messages if message["role"] == "user"]
        blocks: list[JsonObject] = users[-1]["content"]
        results = [echoed_text(block) for block in blocks if block["type"] == "tool_result"]
        rest = join_parts(echoed_text(block) for block in blocks if block["type"] != "tool_result")
        prefill = self._prefill()
        after = f"[after: {prefill}] " if prefill else ""
        return after + " ".join(text for text in (*results, rest) if text)

    def has_results(self) -> bool:
        return any(block["type"] == "tool_result" for block in self.messages[-1]["content"])

    def _prefill(self) -> str:
        last = self.messages[-1]
        return join_parts(map(echoed_text, last["content"])) if last["role"] == "assistant" else ""

    def schema(self) -> JsonObject | None:
        form: JsonObject = (self.fields.get("output_config") or {}).get("format") or {}
        return form.get("schema")


def _check_headers(headers: Mapping[str, str]) -> None:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    has_key = headers.get("x-api-key") or (scheme.lower() == "bearer" and bearer)
    require(has_key, "x-api-key header is required", status=401)
    require(headers.get("anthropic-version"), "anthropic-version: header is required")


def _system_text(system: str | list[JsonObject] | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    return " ".join(block["text"] for block in system)


# ------------------------------------------------------------------------------------- messages


def _merged_messages(listed: list[JsonObject]) -> list[JsonObject]:
    """Return the messages as blocks; consecutive messages of one role are merged."""
    require(listed, "messages: at least one message is required")
    merged: list[JsonObject] = []
    for at, message in enumerate(listed):
        role, content = message["role"], message["content"]
        is_prefill = at == len(listed) - 1 and role == "assistant"
        require(role in {"user", "assistant"}, f"messages.{at}.role: Unexpected role")
        require(content or is_prefill, f"messages.{at}: messages must have non-empty content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        for number, block in enumerate(content):
            _check_block(f"messages.{at}.content.{number}", role, block)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += content
        else:
            merged.append({"role": role, "content": list(content)})
    require(merged[0]["role"] == "user", 'messages: first message must use the "user" role')
    last = merged[-1]["content"][-1] if merged[-1]["content"] else {}
    if merged[-1]["role"] == "assistant" and last.get("type") == "text":
        text: str = last["text"]
        require(text == text.rstrip(), "messages: final text cannot end with whitespace")
    return merged


def _check_block(path: str, role: str, block: JsonObject) -> None:
    kind: str = block["type"]
    require(_ONLY_FROM.get(kind, role) == role, f"{path}: `{kind}` blocks cannot be in `{role}`")
    match kind:
        case "text":
            require(block["text"].strip(), "messages: text content blocks must be non-empty")
        case "image":
            _attachment(block["source"])
        case "thinking":
            genuine = block["signature"] == signed("sig", block["thinking"])
            require(genuine, f"{path}: Invalid `signature` in `thinking` block")
        case "redacted_thinking":
            require(is_token("redacted", block["data"]), f"{path}: Invalid `data`")
        case "tool_result":
            content = block.get("content") or ""
            for at, each in enumerate(() if isinstance(content, str) else content):
                _check_block(f"{path}.content.{at}", "user", each)
        case _:
            pass


def _check_calls(messages: list[JsonObject]) -> None:
    """Refuse a call without its result in the next message, and a result without its call."""
    calls: list[str] = []
    for at, message in enumerate(messages):
        blocks: list[JsonObject] = message["content"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        require(set(results) <= set(calls), f"messages.{at}: unexpected `tool_use_id`")
        require(len(set(results)) == len(results), f"messages.{at}: more than one result of a call")
        first = {block["type"] for block in blocks[: len(results)]}
        answered = set(calls) == set(results) and first <= {"tool_result"}
        require(answered, f"messages.{at}: `tool_use` ids without `tool_result` blocks after them")
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    require(not calls, "messages: the last `tool_use` ids have no `tool_result` blocks")


# ------------------------------------------------------------------------ tools and thinking


def _forced_tool(fields: JsonObject, tools: list[JsonObject]) -> str | None:
    names = [tool.get("name") for tool in tools]
    choice: JsonObject | None = fields.get("tool_choice")
    if choice is None:
        return None
    require(tools, "tool_choice: may only be specified while providing tools")
    name = choice.get("name")
    require(name is None or name in names, f"Tool '{name}' not found in provided tools")
    return name


def _check_thinking(fields: JsonObject, messages: list[JsonObject]) -> bool:
    """Return whether thinking is enabled; refuse what conflicts with it."""
    thinking: JsonObject = fields.get("thinking") or {"type": "disabled"}
    if thinking["type"] == "enabled":
        budget: int = thinking["budget_tokens"]
        require(budget >= _LEAST_BUDGET, "thinking.budget_tokens: should be at least 1024")
        enough = budget < fields.get("max_tokens", budget + 1)
        require(enough, "`max_tokens` must be greater than `thinking.budget_tokens`.")
        _check_thought_kept(messages)
    if thinking["type"] not in {"enabled", "adaptive"}:
        return False
    require(fields.get("temperature", 1) == 1, "`temperature` may only be 1 with thinking.")
    require("top_k" not in fields, "`top_k` must be unset when thinking is enabled.")
    require(fields.get("top_p", 1) >= _LEAST_TOP_P, "`top_p` must be at least 0.95 with thinking.")
    forces = (fields.get("tool_choice") or {}).get("type") in {"any", "tool"}
    require(not forces, "Thinking may not be enabled when tool_choice forces tool use.")
    prefilled = messages[-1]["role"] == "assistant"
    require(not prefilled, "messages: a reply cannot be prefilled when thinking is enabled")
    return True


def _check_thought_kept(messages: list[JsonObject]) -> None:
    """Refuse tool results whose turn lost its leading thinking block.

    Source: https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking (preserving
    thinking blocks); adaptive thinking requires none.
    """
    at = len(messages) - 1
    while at > 1 and messages[at]["content"][0]["type"] == "tool_result":
        at -= 2
    if at < len(messages) - 1:
        kind = messages[at + 1]["content"][0]["type"]
        kept = kind in {"thinking", "redacted_thinking"}
        require(kept, f"messages.{at + 1}.content.0.type: Expected `thinking`, found `{kind}`.")


# --------------------------------------------------------------------------------- echoed text


def echoed_text(block: JsonObject) -> str:
    """Return the text of a block in an echo; empty for reasoning and tool calls."""
    match block["type"]:
        case "text":
            return block["text"]
        case "image":
            return _attachment(block["source"])
        case "tool_result":
            said = block.get("content") or ""
            text = said if isinstance(said, str) else join_parts(map(echoed_text, said))
            return f"[error] {text}" if block.get("is_error") else text
        case _:
            return ""


def _attachment(source: JsonObject) -> Attachment:
    if source["type"] == "base64":
        return attached(source["media_type"], source["data"])
    return attached_from_url(source["url"])
