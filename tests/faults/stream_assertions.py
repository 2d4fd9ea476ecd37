"""Assertions on the end of a chat stream, written from the contract, not from the code."""

import json

from tests.faults.raw_client import Answer


def assert_legal(answer: Answer) -> dict[str, object]:
    """Assert that a streamed answer is legal to its end; return its last event before `[DONE]`."""
    assert answer.status == 200
    assert answer.whole, "the response itself was cut"
    done = answer.events.index("[DONE]")
    events = [json.loads(chunk) for chunk in answer.events[:done]]
    behind = [json.loads(chunk) for chunk in answer.events[done + 1 :]]
    assert behind == ([{"error": events[-1]["error"]}] if "error" in events[-1] else [])
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert {event["id"] for event in events} == {answer.generation_id}
    if "error" in events[-1]:  # once more without a choice, for clients that overlook it beside one
        assert events.pop() == {**events[-1], "choices": []}
    terminal = [event for event in events if "usage" in event or "error" in event]
    assert terminal == events[-1:], "exactly one terminal event, and nothing after it"
    for event in events[:-1]:
        assert event["choices"], "a chunk without a choice"
    return events[-1]


def assert_error_ending(answer: Answer) -> None:
    """Assert that a stream ended with an error."""
    last = assert_legal(answer)
    error = last["error"]
    assert isinstance(error, dict)
    assert type(error["code"]) is int
    assert error["metadata"]["provider_name"] == "Cutter"
    assert last["choices"][0]["finish_reason"] == "error"  # type: ignore[index]


def assert_bad_gateway(answer: Answer) -> None:
    """Assert that a reply that never began became a 502 with its envelope."""
    assert answer.whole
    assert answer.status == 502
    error = answer.json["error"]
    assert error["code"] == 502
    assert error["metadata"]["provider_name"] == "Cutter"
