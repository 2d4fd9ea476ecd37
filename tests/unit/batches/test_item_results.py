import json
from typing import Any

import pytest

from tests.support.batches import batch
from tests.support.builders import charge, generation_record
from tollhouse.accounting.types import Usage
from tollhouse.batches.items import (
    closing_error,
    error_line,
    generation_id,
    is_retryable,
    item_error,
    progress_of,
    response_line,
)
from tollhouse.batches.types import BatchEndpoint, BatchProgress, ItemError, ItemResult
from tollhouse.kernel.errors import (
    Bug,
    Forbidden,
    Invalid,
    NotFound,
    ProviderModerated,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    TollhouseError,
    Unavailable,
    Unroutable,
)

BATCH = batch()
ERROR = ItemError("invalid_request_error", "It is wrong.", "messages[0]", "invalid_request")


def chat(message: dict[str, Any]) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message}]}).encode()


def test_a_response_has_no_error_beside_it() -> None:
    line = json.loads(response_line(BATCH, 3, "c-3", b'{"object":"chat.completion"}'))
    assert line == {
        "id": "batch_req_00000000000000000000000000000001_3",
        "custom_id": "c-3",
        "response": {
            "status_code": 200,
            "request_id": generation_id(BATCH, 3),
            "body": {"object": "chat.completion"},
        },
        "error": None,
    }


def test_an_error_has_no_response_beside_it() -> None:
    line = json.loads(error_line(BATCH, 3, "c-3", ERROR))
    assert line["response"] is None
    assert line["error"] == {
        "type": "invalid_request_error",
        "message": "It is wrong.",
        "param": "messages[0]",
        "error_type": "invalid_request",
    }


def test_an_error_without_a_type_of_the_wire_leaves_it_out() -> None:
    line = json.loads(error_line(BATCH, 3, "c-3", closing_error("batch_expired")))
    assert line["error"].keys() == {"type", "message", "param"}


def test_a_reply_is_called_the_same_however_often_its_item_is_run() -> None:
    assert generation_id(BATCH, 7) == generation_id(batch(completed=5), 7)


def test_no_two_items_have_replies_of_one_name() -> None:
    names = {generation_id(each, at) for at in range(500) for each in (BATCH, batch(id="batch_2"))}
    assert len(names) == 1_000


def test_a_replys_name_says_that_it_is_a_batchs_and_when_that_was_made() -> None:
    prefix, word, seconds, digits = generation_id(BATCH, 7).split("-")
    assert (prefix, word, seconds) == ("gen", "batch", "1773311400")
    assert int(digits, 16)


def test_tool_calls_of_a_chat_say_their_places() -> None:
    body = chat({"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b", "index": 5}]})
    line = json.loads(response_line(BATCH, 0, "c", body))
    calls = line["response"]["body"]["choices"][0]["message"]["tool_calls"]
    assert calls == [{"index": 0, "id": "a"}, {"index": 5, "id": "b"}]


def test_a_chat_without_tool_calls_that_speaks_of_them_stays_as_it_is() -> None:
    body = chat({"role": "assistant", "content": '"tool_calls"', "tool_calls": None})
    line = json.loads(response_line(BATCH, 0, "c", body))
    assert line["response"]["body"] == json.loads(body)


def test_other_endpoints_have_no_places_to_say() -> None:
    body = chat({"tool_calls": [{"id": "a"}]})
    line = json.loads(response_line(batch(endpoint=BatchEndpoint.RESPONSES), 0, "c", body))
    assert line["response"]["body"] == json.loads(body)


def test_blocks_of_a_message_have_every_field() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b", "citations": []},
        {"type": "tool_use", "id": "c", "name": "d", "input": {}},
        {"type": "thinking", "thinking": "e", "signature": "f"},
    ]
    body = json.dumps({"type": "message", "content": blocks}).encode()
    line = json.loads(response_line(batch(endpoint=BatchEndpoint.MESSAGES), 0, "c", body))
    assert line["response"]["body"]["content"] == [
        blocks[0] | {"citations": None},
        blocks[1],
        blocks[2] | {"caller": {"type": "direct"}},
        blocks[3],
    ]


@pytest.mark.parametrize(
    ("error", "kind", "param"),
    [
        (Invalid("messages[0].role: is required."), "invalid_request_error", "messages[0].role"),
        (Invalid("The body is not readable."), "invalid_request_error", None),
        (NotFound("No such model."), "not_found_error", None),
        (Forbidden("provider: blocked."), "permission_error", None),
        (ProviderRateLimited("Slow.", provider_name="a"), "rate_limit_error", None),
        (ProviderOverloaded("Full.", provider_name="a"), "overloaded_error", None),
        (ProviderTimeout("Late.", provider_name="a"), "timeout_error", None),
        (ProviderUnavailable("Away.", provider_name="a"), "api_error", None),
    ],
)
def test_an_error_is_told_in_the_wires_words(
    error: TollhouseError, kind: str, param: str | None
) -> None:
    told = item_error(error)
    assert told == ItemError(kind, error.message, param, error.code)


def test_the_text_of_a_bug_stays_inside() -> None:
    assert "secret" not in item_error(Bug("secret")).message


@pytest.mark.parametrize(
    "error",
    [
        ProviderRateLimited("", provider_name="a"),
        ProviderOverloaded("", provider_name="a"),
        ProviderTimeout("", provider_name="a"),
        ProviderUnavailable("", provider_name="a"),
        Unavailable(""),
    ],
)
def test_what_is_the_providers_fault_passes(error: TollhouseError) -> None:
    assert is_retryable(error)


@pytest.mark.parametrize(
    "error",
    [
        ProviderRefused("", provider_name="a"),
        ProviderModerated("", provider_name="a"),
        Invalid(""),
        Forbidden(""),
        NotFound(""),
        Unroutable(""),
        Bug(""),
    ],
)
def test_what_is_the_requests_fault_does_not_pass(error: TollhouseError) -> None:
    assert not is_retryable(error)


def test_progress_counts_what_was_booked_now_and_nothing_twice() -> None:
    usage = Usage(1, 2, 3, 4, 5, 6)
    first = generation_record(id="gen-1", charge=charge(70, usage=usage), provider="Acme")
    again = generation_record(id="gen-2", charge=charge(900, usage=usage))
    outcomes = [
        ItemResult(0, b"", first),
        ItemResult(1, b"", again),
        ItemResult(2, b"", error=ERROR),
        ItemResult(3, b"", generation_record(id="gen-3", charge=charge(0)), ERROR),
    ]
    assert progress_of(outcomes, {"gen-1", "gen-3"}) == BatchProgress(
        completed=2,
        failed=2,
        unrun=1,
        usage=Usage(11, 2, 3, 4, 10, 6),
        cost_nano=70,
        provider="Acme",
        error="requests[2]: It is wrong.",
    )


def test_no_outcome_is_no_progress() -> None:
    assert progress_of([], set()) == BatchProgress()
