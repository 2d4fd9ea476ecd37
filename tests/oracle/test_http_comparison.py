"""What counts as a difference between two gateways, and what does not."""

import json
from typing import Any

import pytest

from tests.oracle.conversations import decided, report
from tests.oracle.http_comparison import Exchange, Made, differences_of
from tests.oracle.http_run import Found, Result
from tests.oracle.http_servers import Reply
from tests.support.providers.upstream_server import ReceivedRequest

NOW = 1_795_000_000
IDS = {"old": f"gen-{NOW + 3}-{'a' * 20}", "new": f"gen-{NOW + 4}-{'b' * 20}"}
JSON = ("content-type", "application/json")
EVENTS = ("content-type", "text/event-stream")


def found(old: Exchange, new: Exchange) -> list[tuple[str, str, str]]:
    """Return the differences of a turn."""
    made = Made(NOW), Made(NOW)
    for each, exchange in zip(made, (old, new), strict=True):
        each.learn(0, exchange.reply)
    return [(each.path, each.old, each.new) for each in differences_of(old, new, made)]


def told(side: str, body: Any, *headers: tuple[str, str], status: int = 200) -> Exchange:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = (*(headers or (JSON,)), ("x-generation-id", IDS[side]))
    return Exchange([], Reply(status, fields, data))


def asked(side: str, body: bytes, **headers: str) -> Exchange:
    request = ReceivedRequest("POST", f"/{side}/3/chat/v1/chat/completions?a=1", headers, body)
    return Exchange([request], Reply(200))


def test_ids_and_times_that_each_gateway_made_are_no_difference() -> None:
    both = [
        told(side, {"id": IDS[side], "output": [{"id": f"msg_{IDS[side]}_0"}], "created": at})
        for side, at in (("old", NOW + 3), ("new", NOW + 4))
    ]
    assert found(*both) == []


def test_an_id_of_another_item_is_a_difference() -> None:
    old, new = (told(side, {"id": f"msg_{IDS[side]}_{at}"}) for at, side in enumerate(IDS))
    assert found(old, new) == [("reply.body.id", '"msg_gen-of-turn-0_0"', '"msg_gen-of-turn-0_1"')]


def test_the_id_of_a_refusal_without_a_generation_is_no_difference() -> None:
    both = [
        Exchange([], Reply(401, (JSON,), json.dumps({"request_id": each}).encode()))
        for each in IDS.values()
    ]
    assert found(*both) == []


def test_a_time_that_the_provider_said_is_compared() -> None:
    old, new = told("old", {"created": 1_700_000_000}), told("new", {"created": 1_700_000_001})
    assert found(old, new) == [("reply.body.created", "1700000000", "1700000001")]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (b'{"a": [1, {"b": "x"}]}', b'{"a": [1, {"b": "y"}]}', "reply.body.a[].b"),
        (b'{"a": 1}', b"{}", "reply.body.a"),
        (b"{}", b'{"a": 1}', "reply.body.a"),
        (b'{"a": [1, 2]}', b'{"a": [1]}', "reply.body.a[]"),
        (b'{"a": 1.50}', b'{"a": 1.5}', "reply.body.a"),
        (b'{"a": 1}', b'{"a": true}', "reply.body.a"),
        (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}', "reply.body (order of names)"),
        (b'{"a": 1}', b'{"a": 1, "a": 1}', "reply.body.a, again"),
        (b"<p>", b"<b>", "reply.body"),
        (b'{"a": "\\u00fc"}', '{"a": "ü"}'.encode(), "reply.bytes"),
    ],
)
def test_all_else_of_a_body_is_compared(old: bytes, new: bytes, path: str) -> None:
    assert [each[0] for each in found(told("old", old), told("new", new))] == [path]


def test_the_status_and_the_headers_are_compared() -> None:
    limited = told("old", {}, JSON, ("retry-after", "7"), ("date", "now"), status=429)
    unhinted = told("new", {}, JSON, status=503)
    assert found(limited, unhinted) == [
        ("reply.status", "429", "503"),
        ("reply.headers.retry-after", '"7"', "(nothing)"),
    ]
    soon = told("new", {}, JSON, ("retry-after", "8"), ("date", "then"), status=429)
    assert found(limited, soon) == [("reply.headers.retry-after", '"7"', '"8"')]


def test_a_generation_that_has_no_id_in_the_headers_is_a_difference() -> None:
    without = Exchange([], Reply(200, (JSON,), b"{}"))
    assert found(told("old", {}), without) == [("reply.headers.x-generation-id", "true", "false")]


def test_the_order_of_events_is_compared_and_comments_are_not() -> None:
    first, second = b'event: a\ndata: {"n": 1}\n\n', b'event: b\ndata: {"n": 2}\n\n'
    old = told("old", first + b": a comment\n\n" + second, EVENTS)
    assert found(old, told("new", first + second, EVENTS)) == []
    assert found(old, told("new", second + first, EVENTS)) == [("reply.events[]", '"a"', '"b"')]


def test_the_pieces_of_a_text_are_compared() -> None:
    old = told("old", b'data: {"delta": "so it"}\n\n', EVENTS)
    new = told("new", b'data: {"delta": "so"}\n\ndata: {"delta": " it"}\n\n', EVENTS)
    assert found(old, new) == [("reply.events[].data.delta", '"so it"', '"so"')]


def test_an_event_that_was_cut_is_a_difference() -> None:
    old, new = told("old", b"data: {}\n\n", EVENTS), told("new", b"data: {}\n\nda", EVENTS)
    assert found(old, new) == [("reply.events[]", "(nothing)", '{"cut": "da"}')]


def test_a_difference_does_not_hide_another_one_of_the_same_turn() -> None:
    old, new = (told(side, {"a": at, "b": [{"c": at}]}) for at, side in enumerate(IDS))
    assert [each[0] for each in found(old, new)] == ["reply.body.a", "reply.body.b[].c"]


def test_what_the_provider_got_is_compared_byte_for_byte() -> None:
    old = asked("old", b'{"a":1}', host="127.0.0.1:1", authorization="Bearer k")
    same = asked("new", b'{"a":1}', host="127.0.0.1:2", authorization="Bearer k")
    assert found(old, same) == []
    spaced = asked("new", b'{"a": 1}', authorization="Bearer k")
    assert found(old, spaced) == [("asked[].bytes", '"{\\"a\\":1}"', '"{\\"a\\": 1}"')]
    other = asked("new", b'{"a":1}', authorization="Bearer other")
    assert found(old, other) == [("asked[].headers.authorization", '"Bearer k"', '"Bearer other"')]


def test_one_more_request_to_a_provider_is_a_difference() -> None:
    old, new = asked("old", b"{}"), asked("new", b"{}")
    [(path, nothing, _)] = found(old, Exchange(new.asked * 2, new.reply))
    assert (path, nothing) == ("asked[]", "(nothing)")


def test_differences_are_counted_by_path_and_those_that_are_decided_stand_apart() -> None:
    listed = [
        Found("chat from chat, whole", "reply.body.a", 1, 0, '"long one"', '"x"'),
        Found("chat from messages, whole", "reply.body.a", 2, 1, '"x"', '"y"'),
        Found("messages from chat, streamed", "reply.events[].data.b", 7, 0, "1", "2"),
    ]
    shown = report(Result(10, 5, found=listed), {"*: reply.events[[]].data.b": "it was wrong"})
    assert shown["equal"] == 7
    [open_], [known] = shown["undecided"], shown["decided"]
    assert (open_["path"], open_["count"]) == ("reply.body.a", 2)
    assert open_["formats"] == {"chat from chat, whole": 1, "chat from messages, whole": 1}
    assert open_["example"]["conversation"] == 2
    assert (known["count"], known["reason"]) == (1, "it was wrong")


def test_every_decided_difference_has_its_reason() -> None:
    assert all(decided().values())
