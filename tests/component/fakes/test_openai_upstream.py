"""The OpenAI stub conforms to OpenAI's published schema."""

import json
import time

import pytest

from tests.component.fakes.conftest import Caller

USAGE = {"include_usage": True}

# ------------------------------------------------------------------------------------------ echo


async def test_echo_is_a_chat_completion(caller: Caller) -> None:
    answer = await caller.ask("echo", "hello  brave world")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {
        *("id", "object", "created", "model", "choices", "usage"),
        *("service_tier", "system_fingerprint"),
    }
    assert (answer.json["object"], answer.json["model"]) == ("chat.completion", "echo")
    assert answer.json["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hello  brave world",
                "refusal": None,
                "annotations": [],
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


async def test_echo_counts_words_as_tokens(caller: Caller) -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "one two three"}]},
    ]
    caller.send_body({"model": "echo", "messages": messages})
    usage = (await caller.answer()).json["usage"]
    assert usage == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


async def test_echo_repeats_the_last_user_message(caller: Caller) -> None:
    roles = ["user", "assistant", "user", "assistant"]
    messages = [{"role": role, "content": str(number)} for number, role in enumerate(roles)]
    caller.send_body({"model": "echo", "messages": messages})
    assert (await caller.answer()).json["choices"][0]["message"]["content"] == "2"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_echo_stops_at_the_token_limit(caller: Caller, name: str) -> None:
    answer = (await caller.ask("echo", "one two three", **{name: 2})).json
    assert answer["choices"][0]["message"]["content"] == "one two"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2


async def test_replies_are_the_same_every_time(caller: Caller) -> None:
    assert (await caller.ask("echo")).body == (await caller.ask("echo")).body


async def test_another_model_is_named_in_its_reply(caller: Caller) -> None:
    assert (await caller.ask("large-2026")).json["model"] == "large-2026"


# --------------------------------------------------------------------------------------- streams


async def test_a_stream_is_chunks_with_one_role_and_one_finish_reason(caller: Caller) -> None:
    answer = await caller.stream("echo", "one two")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.ended
    *chunks, done = answer.events
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "one"},
        {"content": " two"},
        {},
    ]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, None, "stop"]


async def test_a_stream_without_include_usage_has_no_usage_at_all(caller: Caller) -> None:
    assert b"usage" not in (await caller.stream("echo")).body


async def test_include_usage_adds_a_chunk_without_choices_and_null_to_all_others(
    caller: Caller,
) -> None:
    *chunks, last, done = (await caller.stream("echo", stream_options=USAGE)).events
    assert done == "[DONE]"
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 6


async def test_include_usage_false_is_the_default(caller: Caller) -> None:
    answer = await caller.stream("echo", stream_options={"include_usage": False})
    assert b"usage" not in answer.body


async def test_stream_options_without_stream_are_rejected(caller: Caller) -> None:
    answer = await caller.ask("echo", stream_options=USAGE)
    assert answer.status == 400
    assert answer.json["error"]["param"] == "stream_options"


async def test_fixed_is_a_kilobyte_and_fifty_pieces(caller: Caller) -> None:
    whole = (await caller.ask("fixed")).json["choices"][0]["message"]["content"]
    streamed = await caller.stream("fixed")
    assert streamed.text == whole
    assert len(whole) == 1000
    assert len(streamed.events) == 1 + 50 + 1 + 1


@pytest.mark.parametrize("model", ["comments", "crlf", "drip:0", "slow-chunks:0"])
async def test_pings_comments_and_crlf_do_not_change_a_stream(caller: Caller, model: str) -> None:
    said = "tollhouse-benchmark " * 50 if model == "slow-chunks:0" else "one two three"
    answer = await caller.stream(model)
    assert (answer.text, answer.events[-1], answer.ended) == (said, "[DONE]", True)


async def test_slow_chunks_are_sent_one_by_one(caller: Caller) -> None:
    begun = time.monotonic()
    assert (await caller.stream("slow-chunks:4")).ended
    assert time.monotonic() - begun > 50 * 0.004 * 0.9


async def test_a_slow_head_is_sent_after_its_delay(caller: Caller) -> None:
    begun = time.monotonic()
    assert (await caller.ask("slow-head:0.1")).status == 200
    assert time.monotonic() - begun >= 0.09


# ---------------------------------------------------------------------------------- usage, tools


@pytest.mark.parametrize("stream", [False, True])
async def test_no_usage_sends_none_even_if_requested(caller: Caller, *, stream: bool) -> None:
    options = {"stream": True, "stream_options": USAGE} if stream else {}
    assert b'"usage"' not in (await caller.ask("no-usage", **options)).body


async def test_zero_usage_is_all_zeros(caller: Caller) -> None:
    usage = (await caller.ask("zero-usage")).json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (0, 0, 0)


async def test_cached_has_details(caller: Caller) -> None:
    usage = (await caller.ask("cached")).json["usage"]
    assert usage["prompt_tokens"] == 2048
    assert usage["prompt_tokens_details"]["cached_tokens"] == 1920
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 256


TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {}}}]


async def test_tools_calls_the_first_tool(caller: Caller) -> None:
    choice = (await caller.ask("tools", tools=TOOLS)).json["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert (call["type"], call["function"]["name"]) == ("function", "find")
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}


async def test_tools_streams_a_call_in_pieces(caller: Caller) -> None:
    chunks = (await caller.stream("tools", tools=TOOLS)).events[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["function"] == {"name": "find", "arguments": ""}
    assert calls[0]["id"]
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == {"city": "Paris"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_tools_answers_with_the_result_of_the_tool(caller: Caller) -> None:
    messages = [{"role": "user", "content": "?"}, {"role": "tool", "content": "sunny"}]
    caller.send_body({"model": "tools", "messages": messages})
    assert (await caller.answer()).json["choices"][0]["message"]["content"] == "sunny"


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "invalid_request_error", "invalid_api_key"),
        (404, "invalid_request_error", "model_not_found"),
        (429, "requests", "rate_limit_exceeded"),
        (500, "server_error", None),
        (503, "server_error", None),
        (418, "invalid_request_error", None),
    ],
)
async def test_status_is_an_error_object(
    caller: Caller, status: int, kind: str, code: str | None
) -> None:
    answer = await caller.ask(f"status:{status}")
    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert (answer.json["error"]["type"], answer.json["error"]["code"]) == (kind, code)
    assert "retry-after" not in answer.headers


async def test_status_may_have_retry_after(caller: Caller) -> None:
    assert (await caller.ask("status:429:retry=7")).headers["retry-after"] == "7"


@pytest.mark.parametrize("model", ["gpt-none", "", "slow-head", "slow-head:x", "cut:1", "echo:1"])
async def test_an_unknown_model_is_not_found(caller: Caller, model: str) -> None:
    answer = await caller.ask(model)
    assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"model":"echo"}',
        b'{"model":"echo","messages":[]}',
        b'{"model":"echo","messages":["x"]}',
        b'{"model":1,"messages":[{}]}',
    ],
)
async def test_an_invalid_request_is_rejected_and_the_connection_kept(
    caller: Caller, body: bytes
) -> None:
    caller.send_body(body)
    answer = await caller.answer()
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    assert (await caller.ask("echo")).status == 200


async def test_an_unknown_path_is_not_found(caller: Caller) -> None:
    caller.get("/v2/models")
    answer = await caller.answer()
    assert answer.status == 404
    assert answer.json["error"]["message"] == "Invalid URL (GET /v2/models)"


async def test_models_are_listed(caller: Caller) -> None:
    caller.get("/v1/models")
    listed = (await caller.answer()).json
    assert listed["object"] == "list"
    assert {"echo", "fixed", "hang"} <= {model["id"] for model in listed["data"]}
    assert {model["object"] for model in listed["data"]} == {"model"}
