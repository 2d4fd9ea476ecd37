"""Streams that a daemon breaks, cuts or poisons: what the caller gets is legal in any case."""

import json
from typing import Any

import pytest

from tests.component.interns.chat_server import ChatServer
from tests.component.interns.fake_daemon import (
    DISCONNECT,
    ENDED,
    PERMISSION,
    STARTED,
    STREAM,
    FakeDaemon,
    chunk,
    error_response,
    event,
    stream,
)
from tests.support.chat_grammar import check_stream
from tollhouse.interns.chat.events import LARGEST_EVENT
from tollhouse.interns.chat.transcript import Transcript

FIRST = event(*STARTED, 1)
SAID = event("text", {"text": "Hello"}, 2)
WHOLE = FIRST + SAID + event(*ENDED, 3)


SHORT = b"".join(
    each for each in stream(STARTED, ("text", {"text": "é"}), ENDED) if isinstance(each, bytes)
)


def data(text: bytes, number: int = 2, kind: bytes = b"text") -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, kind, text)


POISONS = {
    "ends": b"",
    "ends inside": SAID[:10],
    "cut json": data(b"{"),
    "null": data(b"null"),
    "wrong type": data(b'{"text": 1}'),
    "no text": data(b'{"text": "\xff\xfe"}'),
    "deep": data(b"[" * 100_000),
    "outcome": data(b'{"outcome": "fine"}', kind=b"run.ended"),
    "option": data(
        json.dumps(PERMISSION[1]).replace("allow_once", "maybe").encode(), kind=b"question"
    ),
    "hole": data(b'{"text": "x"}', number=3),
    "twice": data(b'{"text": "x"}', number=1),
    "no number": b'event: text\ndata: {"text": "x"}\n\n',
    "binary": b"\x00\xff" * 1_000 + b"\n\n" + b"data: x\n\n",
}


async def test_what_is_garbage_severs_the_stream(chat: ChatServer, daemon: FakeDaemon) -> None:
    for number, (name, poison) in enumerate(POISONS.items(), 1):
        daemon.script([STREAM, chunk(FIRST), *([chunk(poison)] if poison else []), chunk(b"")])
        told = await chat.stream(session_id="mine")
        assert (told.reason, told.session_id) == ("stream_severed", "mine"), name
        assert (chat.chat_count("stream_severed"), chat.open_streams()) == (number, 0), name


ENDLESS = [b"x" * 60_000, b"data: x\n" * 8_000, b": x\n" * 15_000]


async def test_an_event_without_end_is_not_gathered(chat: ChatServer, daemon: FakeDaemon) -> None:
    for piece in ENDLESS:
        pieces = 3 * LARGEST_EVENT // len(piece)
        daemon.script([STREAM, chunk(FIRST), *[chunk(piece)] * pieces])
        assert (await chat.stream()).reason == "stream_severed", piece[:9]


async def test_a_broken_transfer_severs_the_stream(chat: ChatServer, daemon: FakeDaemon) -> None:
    trailers = b"0\r\n" + b"X: y\r\n" * 20_000
    for poison in (b"zz\r\ngarbage", b"fffffffffffffffff\r\n", b"5\r\nabcdefgh", trailers):
        daemon.script([STREAM, chunk(FIRST), poison, 0.01, DISCONNECT])
        assert (await chat.stream()).reason == "stream_severed", poison[:20]


def cut_points(raw: bytes) -> list[int]:
    """Return a place for each kind of byte at which a stream can be cut."""
    marks = [b"\r\n\r\n", b"\r\n", b"id: ", b"id: 2", b"\nevent", b"data: ", b"\\u00", b"\n\n"]
    found = {0, 1, len(raw) - 1, len(raw)}
    for mark in marks:
        place = raw.find(mark, 1)
        while place >= 0:
            found |= {place, place + 1, place + len(mark)}
            place = raw.find(mark, place + 1)
    return sorted(each for each in found if each <= len(raw))


async def test_wherever_a_connection_is_cut_the_answer_is_legal(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    raw = SHORT
    head = raw.index(b"\r\n\r\n") + 4
    ended = raw.rindex(b"\n\n") + 2
    for place in cut_points(raw):
        chat.machine.interns.clock.advance(60)
        daemon.script([raw[:place], 0.002, DISCONNECT])
        reply = await chat.send()
        if place < head:
            assert reply.status_code == 502
            assert reply.json()["error"]["metadata"]["reason"] == "intern_unreachable"
        else:
            assert reply.status_code == 200
            finish = check_stream(reply.content).finish
            assert finish == ("stop" if place >= ended else "error"), place


async def test_a_stream_that_comes_in_single_bytes_is_whole(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    pieces: list[Any] = []
    for byte in SHORT:
        pieces += [bytes([byte]), 0.0]
    daemon.script(pieces)
    told = await chat.stream()
    assert (told.content, told.finish) == ("é", "stop")


async def test_an_answer_without_a_length_ends_with_its_connection(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    daemon.script([head + WHOLE])
    assert (await chat.stream()).finish == "stop"
    daemon.script([head + FIRST + SAID])
    assert (await chat.stream()).reason == "stream_severed"


async def test_events_that_are_not_for_callers_are_passed_over(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script(
        stream(
            STARTED,
            ("plan", {"steps": [1]}),
            ("tool.ended", {"call": "c", "outcome": "done"}),
            ("steered", {"input": "x"}),
            ("text", {"text": "x", "new": 1}),
            ENDED,
        )
    )
    assert (await chat.stream()).content == "x"


async def test_a_run_that_fails(chat: ChatServer, daemon: FakeDaemon) -> None:
    errors: list[tuple[dict[str, Any], str, bool]] = [
        ({"reason": "turn_failed", "retryable": True}, "turn_failed", True),
        ({"reason": "turn_failed", "retryable": False}, "turn_failed", False),
        ({"reason": "stream_severed", "retryable": True}, "stream_severed", True),
        ({"reason": "not of the protocol"}, "turn_failed", False),
        ({"reason": "rate_limited", "code": 429}, "turn_failed", False),
    ]
    for error, reason, retryable in errors:
        before = chat.chat_count(reason)
        ended = {"outcome": "failed", "usage": None, "error": {"message": "No model.", **error}}
        daemon.script(stream(STARTED, ("run.ended", ended)))
        told = await chat.stream()
        metadata = {"reason": reason, "retryable": retryable}
        assert told.error == {"code": 502, "message": "No model.", "metadata": metadata}
        assert told.session_id is not None
        assert chat.chat_count(reason) == before + 1


async def test_a_failed_run_tells_what_it_has_used(chat: ChatServer, daemon: FakeDaemon) -> None:
    usage = {"input_tokens": 1, "cached_tokens": 0, "output_tokens": 0, "cost": None}
    daemon.script(stream(STARTED, ("run.ended", {"outcome": "failed", "usage": usage})))
    assert (await chat.stream()).usage == {
        "prompt_tokens": 1,
        "completion_tokens": 0,
        "total_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_fault_of_ours_ends_the_stream_legally(
    chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(Transcript, "tell", broken)
    assert (await chat.stream()).reason == "stream_severed"


async def test_nothing_that_is_said_is_logged(
    chat: ChatServer, daemon: FakeDaemon, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "hunter2"
    for answer in (
        stream(STARTED, ("text", {"text": said}), ENDED),
        [STREAM, chunk(FIRST), chunk(data(b'{"text": "hunter2", "x": '))],
        error_response(500, said, message=said),
        [b"HTTP/1.1 hunter2\r\n\r\n"],
    ):
        daemon.script(answer)
        await chat.send(messages=[{"role": "user", "content": said}])
    token = daemon.asked[0].head.split(b"Bearer ")[1].split(b"\r\n")[0].decode()
    shown = "".join(capfd.readouterr())
    assert said not in shown
    assert token not in shown
