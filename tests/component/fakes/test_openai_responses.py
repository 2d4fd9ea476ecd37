"""The stub of OpenAI's responses API validates requests as OpenAI does, and fails on request."""

from typing import Any

import pytest

from tests.component.fakes.conftest import Answer, Caller

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "weather", "parameters": CITY}
USER = {"role": "user", "content": "one two three"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
CUSTOM_OUTPUT = OUTPUT | {"type": "custom_tool_call_output"}
SUMMARY = {"summary": "auto"}
INCLUDE = ["reasoning.encrypted_content"]


class Responses:
    """Sends requests to the stub on one connection."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def ask(self, model: str = "echo", **fields: Any) -> Answer:
        body = {"model": model, "input": "one two three", **fields}
        given = {name: value for name, value in body.items() if value is not ...}
        self._caller.send_to("/v1/responses", given, {})
        return await self._caller.answer()

    async def refusal(self, **fields: Any) -> dict[str, Any]:
        answer = await self.ask(**fields)
        assert answer.status == 400
        assert answer.json["error"]["type"] == "invalid_request_error"
        return answer.json["error"]

    async def said(self, **fields: Any) -> str:
        return (await self.ask(**fields)).json["output"][-1]["content"][0]["text"]

    async def types(self, model: str, **fields: Any) -> list[str]:
        return [event["type"] for event in (await self.ask(model, stream=True, **fields)).events]


@pytest.fixture
def responses(caller: Caller) -> Responses:
    return Responses(caller)


# ------------------------------------------------------------------------------------------ echo


async def test_a_response_echoes_the_user_and_counts_words(responses: Responses) -> None:
    answer = (await responses.ask(instructions="be kind")).json
    assert answer["output"][0]["content"][0]["text"] == "one two three"
    assert (answer["status"], answer["instructions"]) == ("completed", "be kind")
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (5, 3)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}, "[image/png 3 bytes]"),
        (
            {"type": "input_image", "image_url": "https://a.example/b"},
            "[image https://a.example/b]",
        ),
        (
            {"type": "input_file", "file_data": "data:application/pdf;base64,AAAA"},
            "[document application/pdf 3 bytes]",
        ),
    ],
)
async def test_attachments_are_acknowledged(
    responses: Responses, part: dict[str, Any], said: str
) -> None:
    content = [part, {"type": "input_text", "text": "look"}]
    assert await responses.said(input=[{"role": "user", "content": content}]) == f"{said} look"


async def test_a_limit_leaves_the_response_incomplete(responses: Responses) -> None:
    answer = (await responses.ask(input="word " * 20, max_output_tokens=16)).json
    assert answer["status"] == answer["output"][0]["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["usage"]["output_tokens"] == 16
    types = await responses.types("echo", input="word " * 20, max_output_tokens=16)
    assert types[-1] == "response.incomplete"


# ------------------------------------------------------------------------------------- strictness


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"n": 1}, "unknown_parameter", "n"),
        ({"max_tokens": 20}, "unknown_parameter", "max_tokens"),
        ({"input": ...}, "missing_required_parameter", "input"),
        ({"input": []}, "empty_array", "input"),
        ({"input": 1}, "invalid_type", "input"),
        ({"max_output_tokens": 15}, "integer_below_min_value", "max_output_tokens"),
        ({"temperature": 3}, "decimal_above_max_value", "temperature"),
        ({"store": True}, "unsupported_value", "store"),
        ({"stream_options": {}}, None, "stream_options"),
        ({"previous_response_id": "r"}, "previous_response_not_found", "previous_response_id"),
        ({"include": ["thoughts"]}, "invalid_value", "include[0]"),
        ({"reasoning": {"max_tokens": 5}}, "unknown_parameter", "reasoning.max_tokens"),
        ({"reasoning": {"effort": "huge"}}, "invalid_value", "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        (
            {"text": {"format": {"type": "json_schema", "json_schema": {}}}},
            "missing_required_parameter",
            "text.format.name",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            "missing_required_parameter",
            "tools[0].name",
        ),
        ({"tools": [TOOL | {"name": "a b"}]}, "invalid_value", "tools[0].name"),
        (
            {"tools": [TOOL | {"strict": True, "parameters": {"type": "object"}}]},
            "invalid_function_parameters",
            "tools[0].parameters",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
            "missing_required_parameter",
            "tool_choice.name",
        ),
        ({"tool_choice": {"type": "function", "name": "weather"}}, None, "tool_choice"),
    ],
)
async def test_an_invalid_parameter_is_rejected(
    responses: Responses, fields: dict[str, Any], code: str | None, param: str
) -> None:
    refusal = await responses.refusal(**fields)
    assert (refusal["code"], refusal["param"]) == (code, param)


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([{"type": "thought"}], "input[0].type"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
        ([USER | {"name": "Ann"}], "input[0].name"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
            "input[0].content[0].type",
        ),
        (
            [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
            "input[0].content[0].type",
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": {"url": "x"}}]}],
            "input[0].content[0].image_url",
        ),
        ([CALL | {"id": "call_1"}, OUTPUT], "input[0].id"),
        ([CALL | {"call_id": "c" * 65}, OUTPUT], "input[0].call_id"),
        ([CALL | {"arguments": {}}, OUTPUT], "input[0].arguments"),
        ([OUTPUT], "input"),
        ([CALL], "input"),
        ([OUTPUT, CALL], "input"),
        ([CALL, CUSTOM_OUTPUT], "input"),
    ],
)
async def test_an_invalid_item_is_rejected(
    responses: Responses, items: list[Any], param: str
) -> None:
    assert (await responses.refusal(input=items))["param"] == param


async def test_nothing_is_stored(responses: Responses) -> None:
    answer = await responses.ask(input=[{"type": "item_reference", "id": "rs_1"}])
    assert answer.status == 404


# ---------------------------------------------------------------------------------------- thoughts


async def test_reasoning_is_encrypted_only_if_requested(responses: Responses) -> None:
    bare = (await responses.ask("reasoning")).json["output"][0]
    assert (bare["summary"], "encrypted_content" in bare) == ([], False)
    told = (await responses.ask("reasoning", reasoning=SUMMARY, include=INCLUDE)).json["output"][0]
    assert told["summary"][0]["text"]
    assert (await responses.ask(input=[told, USER])).status == 200


@pytest.mark.parametrize("sealed", [None, "enc-00000000-00000000", "gAAAA"])
async def test_reasoning_with_an_invalid_signature_is_rejected(
    responses: Responses, sealed: str | None
) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed}
    refusal = await responses.refusal(input=[thought, USER])
    assert refusal["code"] == "invalid_encrypted_content"


async def test_a_call_follows_reasoning_if_reasoning_is_enabled(responses: Responses) -> None:
    answer = await responses.ask("tools", tools=[TOOL], reasoning={"effort": "low"})
    assert [item["type"] for item in answer.json["output"]] == ["reasoning", "function_call"]


# ------------------------------------------------------------------------------------------ tools


@pytest.mark.parametrize(("parallel", "count"), [(True, 2), (False, 1)])
async def test_parallel_calls_can_be_disabled(
    responses: Responses, count: int, *, parallel: bool
) -> None:
    tools = [TOOL, TOOL | {"name": "time"}]
    answer = await responses.ask("two-tools", tools=tools, parallel_tool_calls=parallel)
    assert len(answer.json["output"]) == count


async def test_the_result_of_a_tool_is_echoed(responses: Responses) -> None:
    assert await responses.said(model="tools", tools=[TOOL], input=[USER, CALL, OUTPUT]) == "sunny"


# --------------------------------------------------------------------------------------- failures


async def test_a_stream_ends_with_the_complete_response_and_no_done(responses: Responses) -> None:
    answer = await responses.ask(stream=True)
    assert answer.events[-1]["type"] == "response.completed"
    assert answer.events[-1]["response"] == (await responses.ask()).json


async def test_no_done_ends_cleanly_before_the_terminal_event(responses: Responses) -> None:
    assert (await responses.types("no-done"))[-1] == "response.output_item.done"


async def test_a_stream_may_fail_after_some_events(responses: Responses) -> None:
    types = await responses.types("error-in-stream")
    assert types[-2:] == ["response.output_text.delta", "response.failed"]
    assert (await responses.ask("error-in-stream")).status == 500


async def test_sequence_numbers_continue_to_a_failed_response(responses: Responses) -> None:
    events = (await responses.ask("error-in-stream", stream=True)).events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize("stream", [False, True])
async def test_cut_ends_after_the_given_number_of_bytes(
    responses: Responses, *, stream: bool
) -> None:
    answer = await responses.ask("cut:100:eof", stream=stream)
    assert (len(answer.body), answer.ended) == (100, False)


async def test_fixed_is_a_kilobyte_and_fifty_deltas(responses: Responses) -> None:
    assert len(await responses.said(model="fixed")) == 1000
    assert (await responses.types("fixed")).count("response.output_text.delta") == 50


async def test_errors_have_openais_schema(responses: Responses) -> None:
    busy = await responses.ask("status:429:retry=7")
    assert (busy.status, busy.headers["retry-after"]) == (429, "7")
    assert (await responses.ask("garbage")).body == b"this is not JSON"
    assert (await responses.ask("gpt-none")).json["error"]["code"] == "model_not_found"
