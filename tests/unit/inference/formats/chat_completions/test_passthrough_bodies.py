import json
from typing import Any

import pytest

from tests.unit.inference import replies
from tollhouse.accounting.pricing import charge_for
from tollhouse.accounting.types import Charge, Usage
from tollhouse.inference.formats.chat_completions.passthrough import (
    ChatPassthroughAdapter,
    ChatResponse,
    MalformedResponse,
)
from tollhouse.inference.formats.chat_completions.wire import ErrorEvent, parse_request
from tollhouse.inference.providers.simulated.models import BEHAVIOURS
from tollhouse.inference.types import ReplyIdentity

REQUEST = parse_request(b'{"model":"acme/large","messages":[{"role":"user","content":"hello"}]}')
IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1700000000)
PRICE = BEHAVIOURS["echo"].price


def parsed(reply: object) -> ChatResponse:
    return ChatPassthroughAdapter(REQUEST).parse_response(json.dumps(reply).encode())


def charged(reply: ChatResponse) -> Charge:
    return charge_for(
        reply.reported,
        reply.seen,
        PRICE,
        finish_reason=reply.finish_reason,
        broken_off=False,
    )


def relayed(reply: object) -> dict[str, Any]:
    read = parsed(reply)
    answer: dict[str, Any] = json.loads(read.render(IDENTITY, charged(read)))
    return answer


def test_the_response_has_the_gateways_fields() -> None:
    answer = relayed(replies.whole())
    ours = {name: answer[name] for name in ("id", "object", "created", "model", "provider")}
    assert ours == {
        "id": "gen-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "acme/large",
        "provider": "Acme",
    }


def test_other_fields_are_the_providers() -> None:
    reply = replies.whole(citations=["a"], x_groq={"id": "r"})
    answer = relayed(reply)
    for name in ("service_tier", "system_fingerprint", "citations", "x_groq"):
        assert answer[name] == reply[name]
    assert answer["choices"][0]["message"] == reply["choices"][0]["message"]


def test_provider_fields_keep_their_bytes() -> None:
    body = (
        b'{"x": 1e999 ,"choices":[{"message":{"content":"\\u0041" , "y":0.10}, "z":[ ] }],'
        b'"big":123456789012345678901234567890}'
    )
    read = ChatPassthroughAdapter(REQUEST).parse_response(body)
    answer = read.render(IDENTITY, charged(read))
    for piece in (
        b'"x":1e999',
        b'"content":"\\u0041"',
        b'"y":0.10',
        b'"z":[ ]',
        b'"big":123456789012345678901234567890',
    ):
        assert piece in answer


def test_invalid_utf8_is_replaced() -> None:
    body = json.dumps(replies.whole(x="?")).encode().replace(b"?", b"\xff")
    read = ChatPassthroughAdapter(REQUEST).parse_response(body)
    answer = json.loads(read.render(IDENTITY, charged(read)))
    assert answer["x"] == "\N{REPLACEMENT CHARACTER}"


def test_tool_calls_are_passed_through() -> None:
    choice = replies.choice(None, "tool_calls", tool_calls=replies.TOOL_CALLS)
    answer = relayed(replies.whole(choices=[choice]))["choices"][0]
    assert answer["message"]["tool_calls"] == replies.TOOL_CALLS
    assert answer["message"]["content"] is None
    assert (answer["finish_reason"], answer["native_finish_reason"]) == ("tool_calls", "tool_calls")


def test_a_refusal_is_passed_through() -> None:
    choice = replies.choice(None, refusal="I cannot help with that.")
    answer = relayed(replies.whole(choices=[choice]))["choices"][0]
    assert answer["message"]["refusal"] == "I cannot help with that."


def test_logprobs_are_passed_through() -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
    answer = relayed(replies.whole(choices=[replies.choice("a") | {"logprobs": logprobs}]))
    assert answer["choices"][0]["logprobs"] == logprobs


def test_every_choice_is_passed_through() -> None:
    choices = [replies.choice("a"), replies.choice("b", "length") | {"index": 1}]
    answer = relayed(replies.whole(choices=choices))["choices"]
    assert [each["message"]["content"] for each in answer] == ["a", "b"]
    assert [each["index"] for each in answer] == [0, 1]
    assert [each["finish_reason"] for each in answer] == ["stop", "length"]


@pytest.mark.parametrize(
    ("native", "normal"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
        ("error", "error"),
        ("function_call", "tool_calls"),
        ("max_tokens", "length"),
        ("eos", "stop"),
        ("something new", "stop"),
        (None, None),
    ],
)
def test_a_finish_reason_is_normalized_and_the_native_one_kept(
    native: str | None, normal: str | None
) -> None:
    reply = replies.whole(choices=[replies.choice("a", native)])
    assert parsed(reply).finish_reason == normal
    assert parsed(reply).native_finish_reason == native
    answer = relayed(reply)["choices"][0]
    assert (answer["finish_reason"], answer["native_finish_reason"]) == (normal, native)


def test_a_missing_finish_reason_is_null() -> None:
    choice = replies.choice("a")
    del choice["finish_reason"]
    answer = relayed(replies.whole(choices=[choice]))["choices"][0]
    assert (answer["finish_reason"], answer["native_finish_reason"]) == (None, None)


def test_fields_that_clients_require_are_filled_in() -> None:
    answer = relayed({"choices": [{"message": {}}, {"index": None, "message": {}}]})
    assert answer["system_fingerprint"] is None
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    for choice in answer["choices"]:
        assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}
        assert (choice["finish_reason"], choice["logprobs"]) == (None, None)


@pytest.mark.parametrize("created", [None, "2026-01-01", 1.5, -1])
def test_created_is_the_gateways_integer(created: object) -> None:
    assert relayed(replies.whole(created=created))["created"] == 1700000000


# Usage


def test_usage_is_read_in_disjoint_classes() -> None:
    assert parsed(replies.whole()).reported == Usage(
        input_tokens=15, cache_read_tokens=4, output_tokens=10, reasoning_tokens=3
    )


def test_usage_is_priced() -> None:
    assert relayed(replies.whole())["usage"] == {
        "prompt_tokens": 19,
        "completion_tokens": 10,
        "total_tokens": 29,
        "cost": 0.0000354,
        "is_byok": False,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
        "cost_details": {
            "upstream_inference_cost": None,
            "upstream_inference_prompt_cost": 0.0000154,
            "upstream_inference_completions_cost": 0.00002,
        },
    }


def test_the_providers_own_cost_is_replaced() -> None:
    usage = replies.USAGE | {"cost": 99.0, "is_byok": True}
    assert relayed(replies.whole(usage=usage)) == relayed(replies.whole())


def test_input_tokens_are_not_negative_if_more_are_cached() -> None:
    usage = replies.USAGE | {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
    assert parsed(replies.whole(usage=usage)).reported == Usage(
        input_tokens=0, cache_read_tokens=5, output_tokens=10, reasoning_tokens=3
    )


def test_cache_write_tokens_are_counted_separately() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 5},
    }
    assert parsed(replies.whole(usage=usage)).reported == Usage(
        input_tokens=3, cache_read_tokens=2, cache_write_tokens=5, output_tokens=1
    )


def test_null_token_details_count_as_zero() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": None},
        "completion_tokens_details": None,
    }
    assert parsed(replies.whole(usage=usage)).reported == Usage(input_tokens=10, output_tokens=2)


def test_a_usage_of_zero_counts_as_reported() -> None:
    assert (
        parsed(replies.whole(usage={"prompt_tokens": 0, "completion_tokens": 0})).reported
        == Usage()
    )


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"completion_tokens": 5},
        {"prompt_tokens": None, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": None},
        {"prompt_tokens": -5, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": -5},
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}},
        {"prompt_tokens": 5, "completion_tokens_details": {"reasoning_tokens": -1}},
        {"prompt_tokens": "5", "completion_tokens": 5},
        {"prompt_tokens": 5.5, "completion_tokens": 5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": 2**31, "completion_tokens": 5},
        {"prompt_tokens": 10**70, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": 10**30},
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10**30}},
        [],
        "many",
        7,
    ],
)
def test_an_implausible_usage_is_ignored(usage: object) -> None:
    assert parsed(replies.whole(usage=usage)).reported is None


def test_without_usage_the_cost_is_null_on_the_wire() -> None:
    reply = replies.whole()
    del reply["usage"]
    usage = relayed(reply)["usage"]
    assert usage["cost"] is None
    assert "cost_details" not in usage


def test_without_usage_tokens_are_estimated_from_the_output() -> None:
    choices = [replies.choice("abcdefgh"), replies.choice(None, refusal="abcd")]
    seen = parsed(replies.whole(usage=None, choices=choices)).seen
    assert seen == Usage(input_tokens=-(-REQUEST.size // 4), output_tokens=3)


# Invalid bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b"<html>502 Bad Gateway</html>",
        b"{}",
        b'{"choices":null}',
        b'{"choices":[]}',
        b'{"choices":{}}',
        b'{"choices":[null]}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":null}]}',
        b'{"choices":[{"message":"hello"}]}',
        b'{"choices":[{"message":{},"finish_reason":7}]}',
        b'{"choices":[{"message":{}},{"message":{},"finish_reason":[]}]}',
        b'{"choices":[{"message":{}}]',
        b'{"choices":[{"message":{}}]} and more',
        b'{"choices":[{"\xff":{}}]}',
        b'{"choices":' + b"[" * 100_000,
        b"data: {}\n\n",
    ],
)
def test_an_invalid_body_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        ChatPassthroughAdapter(REQUEST).parse_response(body)


def test_a_truncated_response_is_malformed() -> None:
    body = json.dumps(replies.whole()).encode()
    for cut in range(len(body)):
        with pytest.raises(MalformedResponse):
            ChatPassthroughAdapter(REQUEST).parse_response(body[:cut])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ({"message": "Too many", "code": 429}, 429, "Too many"),
        ({"message": "Too many", "code": "rate_limited"}, "rate_limited", "Too many"),
        ({"message": "Bad", "type": "invalid_request_error"}, "invalid_request_error", "Bad"),
        ({"message": "Bad", "type": "t", "code": None}, "t", "Bad"),
        ("out of memory", None, "out of memory"),
        ({}, None, None),
        (True, None, None),
        ({"message": ["a"]}, None, None),
        ({"code": "x" * 1000}, "x" * 100, None),
    ],
)
def test_an_error_under_a_success_status_is_the_providers_error(
    error: object, code: object, message: str | None
) -> None:
    for reply in ({"error": error}, replies.whole(error=error)):
        with pytest.raises(ErrorEvent) as caught:
            parsed(reply)
        assert (caught.value.code, caught.value.message) == (code, message)


def test_a_null_error_is_no_error() -> None:
    assert relayed(replies.whole(error=None))["choices"]
