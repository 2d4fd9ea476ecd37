"""Checks requests to OpenAI's stubs: their fields by the published types, the rest here.

Source: OpenAI API reference, "Create chat completion" and "Create a model response";
https://platform.openai.com/docs/guides/structured-outputs (supported schemas),
https://platform.openai.com/docs/guides/reasoning (encrypted reasoning items).
"""

from itertools import takewhile
from typing import Any, Final, cast

from tests.support.providers.published import check_openai_chat, check_openai_response
from tests.support.providers.stub_reply import StubRequest, Tool
from tests.support.providers.stub_text import (
    JsonObject,
    attached_from_url,
    is_token,
    join_parts,
    require,
    signed,
    words,
)

_STREAM_OPTIONS: Final = "'stream_options' is only allowed when 'stream' is enabled."
_LEAST_OUTPUT: Final = 16
_MOST_ID_LENGTH: Final = 64
_OWN_TOOLS: Final = {"function", "custom"}
_ID_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
}


def _fields_of(body: object) -> JsonObject:
    require(isinstance(body, dict), "We could not parse the JSON body of your request.")
    return cast("JsonObject", body)


# ----------------------------------------------------------------------------------------- chat


class ChatRequest(StubRequest):
    """A chat that passed OpenAI's checks; it calls its first tools, whatever is forced."""

    def __init__(self, body: object) -> None:
        fields = self.fields = _fields_of(body)
        require(isinstance(fields.get("model"), str), "you must provide a model parameter")
        check_openai_chat(fields)
        self.model = fields["model"]
        self.messages: list[JsonObject] = fields["messages"]
        require(self.messages, "Missing required parameter: 'messages'.", param="messages")
        for at, message in enumerate(self.messages):
            chat_text(message)
            _check_details(at, message)
        _check_chat_calls(self.messages)
        self.streams = fields.get("stream") is True
        require(
            self.streams or fields.get("stream_options") is None,
            _STREAM_OPTIONS,
            param="stream_options",
        )
        stop: str | list[str] = fields.get("stop") or []
        self.stops = [stop] if isinstance(stop, str) else stop
        self.limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
        called: list[JsonObject] = [tool[tool["type"]] for tool in fields.get("tools") or ()]
        self.tools = [Tool(tool["name"], tool.get("parameters") or {}) for tool in called]
        self.seals_thought = True

    def last_said(self) -> str:
        said = [chat_text(each) for each in self.messages if each["role"] in {"user", "tool"}]
        return " ".join(self._results()) or (said[-1] if said else "")

    def has_results(self) -> bool:
        return self.messages[-1]["role"] == "tool"

    def input_tokens(self) -> int:
        return sum(words(chat_text(message)) for message in self.messages)

    def schema(self) -> JsonObject | None:
        form: JsonObject = self.fields.get("response_format") or {}
        if form.get("type") == "json_object":
            return {"type": "object"}
        return (form.get("json_schema") or {}).get("schema")

    def _results(self) -> list[str]:
        last = takewhile(lambda message: message["role"] == "tool", reversed(self.messages))
        return [chat_text(message) for message in last][::-1]


def _check_details(at: int, message: JsonObject) -> None:
    """Refuse reasoning, as OpenRouter sends it, that does not match its signature."""
    details: list[JsonObject] = message.get("reasoning_details") or []
    proof = signed("sig", "".join(detail.get("text") or "" for detail in details))
    for detail in details:
        genuine = detail.get("signature") in {None, proof}
        where = f"messages[{at}].reasoning_details"
        require(genuine, "Invalid signature in a thought.", param=where)


def _check_chat_calls(messages: list[JsonObject]) -> None:
    """Refuse a call without a result after it, and a result without a call before it."""
    waiting: set[str] = set()
    for at, message in enumerate((*messages, {"role": "end"})):
        where = f"messages[{at}].role"
        if message["role"] == "tool":
            call: str = message["tool_call_id"]
            require(call in waiting, "A 'tool' message answers no call before it.", param=where)
            waiting.discard(call)
            continue
        unanswered = f"Tool calls have no result after them: {', '.join(sorted(waiting))}"
        require(not waiting, unanswered, param=where)
        waiting = {call["id"] for call in message.get("tool_calls") or ()}


def chat_text(message: JsonObject) -> str:
    """Return the text of a message, with acknowledgements of images and files."""
    content: str | list[JsonObject] | None = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    return join_parts(map(_chat_part, content))


def _chat_part(part: JsonObject) -> str:
    if part["type"] == "image_url":
        return attached_from_url(part["image_url"]["url"])
    return part[part["type"]]


# ------------------------------------------------------------------------------------ responses


class ResponsesRequest(StubRequest):
    """A request of the responses API that passed OpenAI's checks."""

    def __init__(self, body: object) -> None:
        given = _fields_of(body)
        fields = self.fields = {name: each for name, each in given.items() if each is not None}
        tools: list[JsonObject] = fields.get("tools") or []
        own = [tool for tool in tools if tool.get("type") in _OWN_TOOLS]
        require("model" in fields, "you must provide a model parameter", param="model")
        check_openai_response(_with_defaults(fields) | ({"tools": own} if tools else {}))
        _check_stored(fields)
        self.model = fields["model"]
        self.streams = fields.get("stream") is True
        require(self.streams or "stream_options" not in fields, _STREAM_OPTIONS)
        _check_options(fields)
        self.limit = fields.get("max_output_tokens")
        self.items = _input_items(fields["input"])
        self.forced_tool = _forced_tool(fields, own)
        self.may_call = fields.get("tool_choice") != "none"
        self.parallel = fields.get("parallel_tool_calls", True)
        self.tools = [
            Tool(tool["name"], tool.get("parameters") or {}, custom=tool["type"] == "custom")
            for tool in own
        ]
        reasoning: JsonObject = fields.get("reasoning") or {}
        self.thinks = reasoning.get("effort", "none") != "none"
        self.shows_thought = bool(reasoning.get("summary") or reasoning.get("generate_summary"))
        self.seals_thought = "reasoning.encrypted_content" in (fields.get("include") or [])

    def input_tokens(self) -> int:
        instructions: str = self.fields.get("instructions") or ""
        return sum(words(text) for text in (instructions, *map(item_text, self.items)))

    def last_said(self) -> str:
        if results := self._results():
            return " ".join(results)
        users = [item for item in self.items if item.get("role") == "user"]
        return item_text(users[-1]) if users else ""

    def has_results(self) -> bool:
        return bool(self._results())

    def schema(self) -> JsonObject | None:
        form: JsonObject = (self.fields.get("text") or {}).get("format") or {}
        return {"type": "object"} if form.get("type") == "json_object" else form.get("schema")

    def _results(self) -> list[str]:
        last = takewhile(lambda item: item["type"].endswith("_output"), reversed(self.items))
        return [item_text(item) for item in last][::-1]


_SAID: Final = {"type": "message", "id": "msg_", "status": "completed"}
_DEFAULTS: Final[dict[str, JsonObject]] = {
    "input_image": {"detail": "auto"},
    "output_text": {"annotations": []},
}


def _with_defaults(fields: JsonObject) -> JsonObject:
    """Return a request with what the types require and OpenAI does not."""
    given: Any = fields.get("input")
    if not isinstance(given, list):
        return fields
    return fields | {"input": [_whole_item(item) for item in cast("list[Any]", given)]}


def _whole_item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    whole = cast("JsonObject", item)
    if whole.get("role") == "assistant" and isinstance(whole.get("content"), list):
        whole = _SAID | whole
    for name in ("content", "output"):
        parts: Any = whole.get(name)
        if isinstance(parts, list):
            whole = whole | {name: [_whole_part(part) for part in cast("list[Any]", parts)]}
    return whole


def _whole_part(part: Any) -> Any:
    return _DEFAULTS.get(str(part.get("type")), {}) | part if isinstance(part, dict) else part


def _check_stored(fields: JsonObject) -> None:
    """Refuse parameters that need stored responses."""
    for name in ("store", "background"):
        text = f"Nothing is stored here: '{name}' must be false."
        require(not fields.get(name), text, code="unsupported_value", param=name)
    name, code = "previous_response_id", "previous_response_not_found"
    require(name not in fields, "Previous response not found.", code=code, param=name)
    require("conversation" not in fields, "Conversation not found.", status=404)


def _check_options(fields: JsonObject) -> None:
    name, code = "max_output_tokens", "integer_below_min_value"
    enough = fields.get(name, _LEAST_OUTPUT) >= _LEAST_OUTPUT
    require(enough, f"Invalid '{name}': integer below minimum value.", code=code, param=name)


def _forced_tool(fields: JsonObject, tools: list[JsonObject]) -> str | None:
    choice: str | JsonObject = fields.get("tool_choice", "auto")
    if isinstance(choice, str) or choice["type"] not in _OWN_TOOLS:
        return None
    known = [tool["name"] for tool in tools if tool["type"] == choice["type"]]
    found = choice["name"] in known
    require(found, "Tool choice not found in 'tools' parameter.", param="tool_choice")
    return choice["name"]


def _input_items(value: str | list[JsonObject]) -> list[JsonObject]:
    """Return the items; a string is one user message."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    require(value, "Invalid 'input': empty array.", code="empty_array", param="input")
    items = [{"type": "message"} | item for item in value]
    waiting: dict[str, str] = {}
    for at, item in enumerate(items):
        _check_item(f"input[{at}]", item)
        kind: str = item["type"]
        if kind in {"function_call", "custom_tool_call"}:
            waiting[item["call_id"]] = kind
        elif kind.endswith("_output"):
            called = waiting.pop(item["call_id"], "") + "_output" == kind
            require(called, f"No tool call found for call_id {item['call_id']}.", param="input")
    require(not waiting, f"No tool output found for {', '.join(waiting)}.", param="input")
    return items


def _check_item(path: str, item: JsonObject) -> None:
    kind: str = item["type"]
    own, prefix = item.get("id"), _ID_PREFIXES.get(kind, "")
    text = f"Invalid '{path}.id': '{own}'. Expected an ID that begins with '{prefix}'."
    right = own is None or own.startswith(prefix)
    require(right, text, code="invalid_value", param=f"{path}.id")
    fits = 0 < len(item.get("call_id", "-")) <= _MOST_ID_LENGTH
    code = "string_above_max_length"
    require(fits, f"Invalid '{path}.call_id'.", code=code, param=f"{path}.call_id")
    if kind == "reasoning":
        text = f"The encrypted content for item {own} could not be verified."
        genuine = is_token("enc", item.get("encrypted_content"))
        require(genuine, text, code="invalid_encrypted_content")
    missing = f"Item with id '{own}' not found. Items are not persisted."
    require(kind != "item_reference", missing, param="input", status=404)
    if item.get("role") == "assistant" and not isinstance(item["content"], str):
        said = {part["type"] for part in item["content"]} <= {"output_text", "refusal"}
        require(said, f"Invalid '{path}.content'.", code="invalid_value", param=f"{path}.content")
    item_text(item)


def item_text(item: JsonObject) -> str:
    """Return the text of an item in an echo; empty for reasoning and calls."""
    content: Any = item.get("output" if item["type"].endswith("_output") else "content") or ""
    if item["type"] == "reasoning":
        return ""
    return content if isinstance(content, str) else join_parts(map(_item_part, content))


def _item_part(part: JsonObject) -> str:
    if part["type"] == "input_image":
        return attached_from_url(part["image_url"])
    return part.get("text") or part.get("refusal") or ""
