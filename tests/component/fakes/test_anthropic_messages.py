"""The Anthropic stub validates requests as Anthropic does, and fails on request."""

import json
from typing import Any

import pytest

from tests.component.fakes.conftest import Answer, Caller

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "weather", "input_schema": CITY}
USER = {"role": "user", "content": "one two three"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
THINKING = {"type": "enabled", "budget_tokens": 1024}
IMAGE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


class Anthropic:
    """Sends requests to the stub on one connection."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def ask(
        self, model: str = "echo", *, headers: dict[str, str] | None = None, **fields: Any
    ) -> Answer:
        body = {"model": model, "max_tokens": 2000, "messages": [USER], **fields}
        given = {name: value for name, value in body.items() if value is not ...}
        head = HEADERS if headers is None else headers
        self._caller.send_to("/v1/messages?beta=true", given, head)
        return await self._caller.answer()

    async def refusal(self, **fields: Any) -> str:
        answer = await self.ask(**fields)
        assert answer.status == 400
        assert answer.json["error"]["type"] == "invalid_request_error"
        return answer.json["error"]["message"]

    async def said(self, model: str = "echo", **fields: Any) -> str:
        return (await self.ask(model, **fields)).json["content"][-1]["text"]


@pytest.fixture
def anthropic(caller: Caller) -> Anthropic:
    return Anthropic(caller)


# ------------------------------------------------------------------------------------------ echo


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([text("one"), text(" two")], "one two"),
        ([{"type": "image", "source": IMAGE}, text("look")], "[image/png 3 bytes] look"),
        (
            [{"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}],
            "[image https://a.example/b.png]",
        ),
        (
            [{"type": "document", "source": IMAGE | {"media_type": "application/pdf"}}],
            "[document application/pdf 3 bytes]",
        ),
    ],
)
async def test_the_last_user_message_is_repeated_with_its_attachments(
    anthropic: Anthropic, blocks: list[Any], said: str
) -> None:
    assert await anthropic.said(messages=[user(*blocks)]) == said


async def test_any_dated_model_is_an_echo_and_names_itself(anthropic: Anthropic) -> None:
    answer = await anthropic.ask("claude-large-2026")
    assert (answer.json["model"], answer.json["type"]) == ("claude-large-2026", "message")


async def test_a_prefill_is_continued(anthropic: Anthropic) -> None:
    messages = [USER, {"role": "assistant", "content": "The answer is"}]
    assert await anthropic.said(messages=messages) == "[after: The answer is] one two three"


async def test_consecutive_messages_of_one_role_are_merged(anthropic: Anthropic) -> None:
    assert await anthropic.said(messages=[user(text("one ")), user(text("two"))]) == "one two"


async def test_a_failed_tool_result_is_marked(anthropic: Anthropic) -> None:
    messages = [USER, assistant(CALL), user(RESULT | {"is_error": True})]
    assert await anthropic.said(messages=messages) == "[error] sunny"


# ----------------------------------------------------------------------------------- who may ask


async def test_a_request_without_a_key_is_refused(anthropic: Anthropic) -> None:
    answer = await anthropic.ask(headers=HEADERS | {"x-api-key": ""})
    assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
    assert set(answer.json) == {"type", "error", "request_id"}


async def test_a_bearer_token_is_a_key(anthropic: Anthropic) -> None:
    headers = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
    assert (await anthropic.ask(headers=headers)).status == 200


@pytest.mark.parametrize("version", ["", "2020-01-01"])
async def test_a_request_needs_a_version(anthropic: Anthropic, version: str) -> None:
    refusal = await anthropic.refusal(headers=HEADERS | {"anthropic-version": version})
    assert refusal.startswith("anthropic-version: ")


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
async def test_the_latest_version_rejects_sampling_parameters(
    anthropic: Anthropic, name: str
) -> None:
    latest = HEADERS | {"anthropic-version": "2026-10-21"}
    assert (await anthropic.ask(**{name: 1})).status == 200
    refusal = await anthropic.refusal(headers=latest, **{name: 1})
    assert refusal == f"{name}: Extra inputs are not permitted"


async def test_beta_fields_need_a_beta_header(anthropic: Anthropic) -> None:
    refusal = await anthropic.refusal(context_management={})
    assert refusal == "context_management: Extra inputs are not permitted"
    beta = HEADERS | {"anthropic-beta": "context-management-2025-06-27"}
    assert (await anthropic.ask(headers=beta, context_management={})).status == 200


# ------------------------------------------------------------------------------------- strictness


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": ...}, "max_tokens: Field required"),
        ({"max_tokens": 0}, "max_tokens: Input should be greater"),
        ({"model": ...}, "model: Field required"),
        ({"messages": []}, "messages: at least one message"),
        ({"n": 1}, "n: Extra inputs are not permitted"),
        ({"stream": "yes"}, "stream: Input should be a valid boolean"),
        ({"temperature": 1.5}, "temperature: range: 0..1"),
        ({"metadata": {"user": "u"}}, "metadata.user: Extra inputs"),
        ({"stop_sequences": [" "]}, "stop_sequences: each stop sequence"),
        ({"system": [text("")]}, "messages: text content blocks must be non-empty"),
        ({"system": [{"type": "image", "source": IMAGE}]}, "system.0.type"),
        ({"output_config": {"format": {"type": "json_object"}}}, "output_config.format.schema"),
        ({"tools": [{"name": "weather"}]}, "tools.0.custom.input_schema: Field required"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools.0.custom.name: String should match"),
        ({"tools": [TOOL | {"input_schema": {}}]}, "tools.0.custom.input_schema.type"),
        ({"tools": [TOOL | {"parameters": {}}]}, "tools.0.custom.parameters: Extra inputs"),
        ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
        ({"tool_choice": {"type": "any"}}, "tool_choice: may only be specified"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "time"}},
            "Tool 'time' not found",
        ),
        ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice: Input should be a valid dict"),
    ],
)
async def test_an_invalid_field_is_rejected(
    anthropic: Anthropic, fields: dict[str, Any], message: str
) -> None:
    assert (await anthropic.refusal(**fields)).startswith(message)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([assistant(text("hi")), USER], "messages: first message must use the"),
        ([{"role": "system", "content": "be kind"}, USER], 'messages: Unexpected role "system"'),
        ([USER | {"name": "Ann"}], "messages.0.name: Extra inputs"),
        ([{"role": "user", "content": ""}], "messages.0: all messages must have non-empty"),
        ([user(text(""))], "messages: text content blocks must be non-empty"),
        ([user(text(" "))], "messages: text content blocks must contain non-whitespace"),
        ([user(text("hi", id=1))], "messages.0.content.0.text.id: Extra inputs"),
        ([user({"type": "input_text"})], "messages.0.content.0: Input tag 'input_text'"),
        ([user(CALL)], "messages.0.content.0: `tool_use` blocks can only be in `assistant`"),
        ([USER, assistant(RESULT)], "messages.1.content.0: `tool_result` blocks can only"),
        ([USER, assistant(text("hi "))], "messages: final assistant content cannot end"),
        (
            [user({"type": "image", "source": IMAGE | {"data": "!"}})],
            "messages.0.content.0.image.source.base64.data: invalid base64",
        ),
        (
            [user({"type": "image", "source": IMAGE | {"media_type": "image/bmp"}})],
            "messages.0.content.0.image.source.base64.media_type",
        ),
    ],
)
async def test_an_invalid_message_is_rejected(
    anthropic: Anthropic, messages: list[Any], message: str
) -> None:
    assert (await anthropic.refusal(messages=messages)).startswith(message)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([USER, assistant(CALL)], "messages.1: `tool_use` ids were found without"),
        ([USER, assistant(CALL), USER], "messages.1: `tool_use` ids were found without"),
        ([USER, assistant(CALL), user(text("so"), RESULT)], "messages.1: `tool_use` ids were"),
        ([user(RESULT)], "messages.0.content: unexpected `tool_use_id`"),
        ([USER, assistant(CALL), user(RESULT, RESULT)], "messages.2.content: each tool_use must"),
        ([USER, assistant(CALL, CALL), user(RESULT)], "messages.1: `tool_use` ids must be uniq"),
        ([USER, assistant(CALL | {"input": "{}"})], "messages.1.content.0.tool_use.input: Input"),
        ([USER, assistant(CALL | {"id": "a.b"})], "messages.1.content.0.tool_use.id: String"),
    ],
)
async def test_calls_and_results_must_match(
    anthropic: Anthropic, messages: list[Any], message: str
) -> None:
    assert (await anthropic.refusal(messages=messages)).startswith(message)


async def test_at_most_four_cache_breakpoints_are_allowed(anthropic: Anthropic) -> None:
    marked = [text("hi", cache_control={"type": "ephemeral"}) for _ in range(5)]
    assert (await anthropic.ask(messages=[user(*marked[:4])])).status == 200
    refusal = await anthropic.refusal(messages=[user(*marked)])
    assert refusal.startswith("A maximum of 4 blocks with cache_control")


# --------------------------------------------------------------------------------------- thinking


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": THINKING | {"budget_tokens": 1023}},
        {"thinking": THINKING | {"budget_tokens": 2000}},
        {"thinking": {"type": "enabled"}},
        {"thinking": THINKING, "temperature": 0.5},
        {"thinking": THINKING, "top_k": 5},
        {"thinking": THINKING, "tools": [TOOL], "tool_choice": {"type": "any"}},
        {"thinking": THINKING, "messages": [USER, assistant(text("So"))]},
        {"thinking": THINKING, "messages": [USER, assistant(CALL), user(RESULT)]},
    ],
    ids=["small", "large", "none", "temperature", "top_k", "forced", "prefill", "lost thought"],
)
async def test_parameters_that_conflict_with_thinking_are_rejected(
    anthropic: Anthropic, fields: dict[str, Any]
) -> None:
    assert await anthropic.refusal(**fields)


async def test_adaptive_thinking_needs_no_earlier_thinking_blocks(anthropic: Anthropic) -> None:
    messages = [USER, assistant(CALL), user(RESULT)]
    answer = await anthropic.ask(thinking={"type": "adaptive"}, messages=messages)
    assert answer.status == 200


async def test_thinking_is_sent_only_if_requested(anthropic: Anthropic) -> None:
    kinds = [block["type"] for block in (await anthropic.ask("redacted")).json["content"]]
    assert kinds == ["text"]
    answer = await anthropic.ask("redacted", thinking=THINKING)
    kinds = [block["type"] for block in answer.json["content"]]
    assert kinds == ["thinking", "redacted_thinking", "text"]


async def test_omitted_thinking_is_its_signature_alone(anthropic: Anthropic) -> None:
    answer = await anthropic.ask("thinking", thinking={"type": "adaptive", "display": "omitted"})
    thought = answer.json["content"][0]
    assert thought["thinking"] == ""
    messages = [USER, assistant(thought, text("hi")), USER]
    assert (await anthropic.ask(messages=messages)).status == 200


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "Let me", "signature": "sig-00000000"},
        {"type": "redacted_thinking", "data": "redacted-00000000-00000000"},
    ],
)
async def test_reasoning_with_an_invalid_signature_is_rejected(
    anthropic: Anthropic, block: dict[str, Any]
) -> None:
    refusal = await anthropic.refusal(messages=[USER, assistant(block, text("hi")), USER])
    assert refusal.startswith("messages.1.content.0: Invalid `")


# ------------------------------------------------------------------------------------------ tools


async def test_a_forced_tool_is_called(anthropic: Anthropic) -> None:
    tools = [TOOL, TOOL | {"name": "time"}]
    choice = {"type": "tool", "name": "time"}
    answer = await anthropic.ask("tools", tools=tools, tool_choice=choice)
    assert [block["name"] for block in answer.json["content"]] == ["time"]


async def test_parallel_calls_can_be_disabled(anthropic: Anthropic) -> None:
    tools = [TOOL, TOOL | {"name": "time"}]
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    answer = await anthropic.ask("two-tools", tools=tools, tool_choice=choice)
    assert [block["name"] for block in answer.json["content"]] == ["weather"]


# --------------------------------------------------------------------------------------- failures


async def test_a_stream_ends_with_a_stop(anthropic: Anthropic) -> None:
    kinds = [event["type"] for event in (await anthropic.ask(stream=True)).events]
    assert kinds[:3] == ["message_start", "content_block_start", "ping"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_no_stop_ends_before_message_stop(anthropic: Anthropic) -> None:
    answer = await anthropic.ask("no-stop", stream=True)
    assert answer.ended
    assert answer.events[-1]["type"] == "message_delta"


async def test_an_error_may_end_a_stream(anthropic: Anthropic) -> None:
    events = (await anthropic.ask("error-in-stream", stream=True)).events
    assert events[-2]["type"] == "content_block_delta"
    assert events[-1]["error"] == {"type": "overloaded_error", "message": "Overloaded"}
    assert (await anthropic.ask("error-in-stream")).status == 500


@pytest.mark.parametrize("model", ["drip:0", "slow-chunks:0", "comments", "ping"])
async def test_pings_comments_and_crlf_do_not_change_a_stream(
    anthropic: Anthropic, model: str
) -> None:
    said = "tollhouse-benchmark " * 50 if model == "slow-chunks:0" else "one two three"
    answer = await anthropic.ask(model, stream=True)
    deltas = [event.get("delta", {}) for event in answer.events]
    assert "".join(delta.get("text", "") for delta in deltas) == said


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["eof", "short"])
async def test_cut_ends_after_the_given_number_of_bytes(
    anthropic: Anthropic, how: str, *, stream: bool
) -> None:
    answer = await anthropic.ask(f"cut:100:{how}", stream=stream)
    assert (len(answer.body), answer.ended) == (100, False)


async def test_fixed_is_a_kilobyte_and_fifty_deltas(anthropic: Anthropic) -> None:
    assert len(await anthropic.said("fixed")) == 1000
    events = (await anthropic.ask("fixed", stream=True)).events
    assert sum(event["type"] == "content_block_delta" for event in events) == 50


async def test_errors_have_anthropics_schema(anthropic: Anthropic) -> None:
    busy = await anthropic.ask("status:429:retry=7")
    assert (busy.status, busy.headers["retry-after"]) == (429, "7")
    assert busy.json["error"]["type"] == "rate_limit_error"
    assert (await anthropic.ask("garbage")).body == b"this is not JSON"
    unknown = await anthropic.ask("claude-none")
    assert (unknown.status, unknown.json["error"]["type"]) == (404, "not_found_error")


async def test_invalid_json_is_rejected(caller: Caller) -> None:
    caller.send_to("/v1/messages", b"{", HEADERS)
    assert (await caller.answer()).status == 400


async def test_tokens_are_counted_in_words(caller: Caller) -> None:
    body = {"model": "echo", "messages": [USER], "system": "be kind"}
    caller.send_to("/v1/messages/count_tokens", body, HEADERS)
    assert (await caller.answer()).json == {"input_tokens": 5}
    caller.send_to("/v1/messages/count_tokens", body | {"max_tokens": 1}, HEADERS)
    assert "max_tokens: Extra inputs" in json.dumps((await caller.answer()).json)
