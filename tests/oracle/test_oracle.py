"""The comparison of versions finds each kind of change, and nothing where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracle import seam, worker
from tests.oracle.__main__ import main
from tests.oracle.checkouts import HERE
from tests.oracle.differences import Comparison, Decision
from tests.oracle.generation import generated
from tests.oracle.inputs import Input, Inputs, write_lines
from tests.oracle.recorder import Recorder

ASKED: Input = {
    "client": "messages",
    "dialect": "chat",
    "body": json.dumps(
        {
            "model": "m",
            "max_tokens": 9,
            "temperature": 1,
            "messages": [{"role": "user", "content": "a"}],
        }
    ),
}
USED = {"prompt_tokens": 5, "completion_tokens": 2}
SAID = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
CHUNKS: list[Any] = [
    {"choices": [{"index": 0, "delta": {"content": "Hello"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USED},
]
REQUEST = ASKED | {"op": "request"}
REPLY = ASKED | {"op": "reply", "reply": json.dumps({"id": "c", "choices": [SAID], "usage": USED})}
STREAM = ASKED | {
    "op": "stream",
    "events": [*map(json.dumps, CHUNKS), "[DONE]"],
    "end": "as it came",
}
GARBAGE = ASKED | {"op": "reply", "reply": "{}"}
INPUTS = [REQUEST, REPLY, STREAM, GARBAGE]


def answers() -> list[str]:
    return [json.dumps(worker.answer(each)) for each in INPUTS]


def compared(before: list[str], after: list[str], *decisions: Decision) -> Comparison:
    found = Comparison(decisions)
    for number, (asked, *both) in enumerate(zip(INPUTS, before, after, strict=True), 1):
        found.add(number, json.dumps(asked), *both)
    return found


def without_a_field(sent: Callable[..., bytes]) -> Callable[..., bytes]:
    def changed(*arguments: Any) -> bytes:
        body = json.loads(sent(*arguments))
        del body["temperature"]
        return json.dumps(body).encode()

    return changed


def with_fact(**changed: Any) -> Callable[..., Any]:
    return lambda facts: lambda reading: facts(reading) | changed


def in_another_order(ended: Callable[..., bytes]) -> Callable[..., bytes]:
    def changed(stream: Any) -> bytes:
        *events, last, end = ended(stream).split(b"\n\n")
        return b"\n\n".join([last, *events, end])

    return changed


class OtherWords(seam.Malformed):
    def __str__(self) -> str:
        return f"sorry: {super().__str__()}"


def with_other_words(read: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*arguments: Any, **named: Any) -> Any:
        try:
            return read(*arguments, **named)
        except seam.Malformed as error:
            raise OtherWords(*error.args) from None

    return changed


@pytest.mark.parametrize(
    ("place", "name", "change", "found"),
    [
        (seam.Exchange, "sent", without_a_field, {("request", "sent: temperature")}),
        (
            *(seam, "facts", with_fact(finish="length")),
            {("reply", "facts.finish"), ("stream", "facts.finish")},
        ),
        (
            *(seam, "facts", with_fact(reported=None)),
            {("reply", "facts.reported"), ("stream", "facts.reported")},
        ),
        (seam, "ended", in_another_order, {("stream", "stream: (order of events)")}),
        (seam.Exchange, "read", with_other_words, {("reply", "text")}),
    ],
    ids=["dropped field", "finish reason", "lost usage", "order of events", "text of an error"],
)
def test_a_change_of_the_formats_is_found_where_it_is(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, change: Any, found: set[Any]
) -> None:
    before = answers()
    monkeypatch.setattr(place, name, change(getattr(place, name)))
    groups = compared(before, answers()).groups
    told = {(op, what) for op, _, _, what in groups if not what.startswith("without content: ")}
    assert told == found


def test_the_same_formats_say_the_same() -> None:
    found = compared(answers(), answers())
    assert (found.equal, found.decided, found.differing) == (len(INPUTS), 0, 0)


def test_a_decided_difference_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = answers()
    monkeypatch.setattr(seam, "facts", with_fact(finish="length")(seam.facts))
    decision = Decision(why="It is a length.", op="stream", what="*facts.finish", before="stop")
    found = compared(before, answers(), decision)
    assert (found.equal, found.decided, found.differing) == (2, 1, 1)
    assert {op for op, *_ in found.groups} == {"reply"}


def test_other_bytes_of_the_same_json_are_told_as_such() -> None:
    before, after = ({"status": "ok", "sent": text} for text in ('{"a":1}', '{"a": 1}'))
    found = Comparison()
    found.add(1, json.dumps(REQUEST), json.dumps(before), json.dumps(after))
    assert [what for *_, what in found.groups] == ["sent: (other bytes)"]


def test_what_the_formats_do_not_promise_to_raise_is_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> bytes:
        raise LookupError("nothing here")

    monkeypatch.setattr(seam.Exchange, "sent", broken)
    said = worker.answer(REQUEST)
    assert (said["status"], said["kind"], said["text"]) == ("crash", "LookupError", "nothing here")


def test_what_a_test_asks_of_the_formats_is_recorded() -> None:
    inputs = Inputs()
    recorder = Recorder(inputs)
    recorder.pytest_sessionstart()
    for each in INPUTS:
        worker.answer(each)
    recorder.take_streams()
    recorder.pytest_sessionfinish()
    worker.answer(GARBAGE | {"reply": "{} "})
    noted = [each for each in inputs.all() if each["op"] != "whole reply"]
    known = [json.loads(json.dumps(each)) for each in INPUTS]
    assert [each for each in known if _plain(each) not in map(_plain, noted)] == []
    assert "{} " not in map(_reply, inputs.all())


def _plain(asked: Input) -> Input:
    """Return an input without how its stream ended, which is recorded as it was."""
    return {name: value for name, value in asked.items() if name != "end"}


def _reply(asked: Input) -> str:
    return asked.get("reply", asked.get("data", ""))


def test_a_checkout_says_the_same_as_itself_of_damaged_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, inputs = tmp_path / "inputs.zst", Inputs()
    for each in (*INPUTS, *generated(INPUTS, Random(1), 60)):
        inputs.add(each)
    write_lines(file, inputs.lines())
    assert main(["compare", str(file), "--repo", str(HERE)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{len(inputs)} equal, 0 decided, 0 different in 0 ways"
