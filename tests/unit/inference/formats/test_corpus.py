"""Requests, replies and streams from one format to another: the cases in `corpus/`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import asdict

from tests.support.seams.formats import (
    CUT,
    IDENTITY,
    ErrorEvent,
    Invalid,
    MalformedResponse,
    adapter,
    charge,
    endpoint,
)
from tests.support.stream_checks import chat, completions, messages, responses
from tests.unit.inference.formats.corpus_files import cases

if TYPE_CHECKING:
    from tests.support.seams.formats import AdaptedResponse, AdaptedStream

REQUESTS, REPLIES, STREAMS = cases("requests"), cases("replies"), cases("streams")
CHECKS = {"chat": chat, "completions": completions, "messages": messages, "responses": responses}
OURS = {"id", "object", "created", "model", "provider"}
ENDS = ("error", "error_type", "incomplete_details", "novelty")
"""What a case has of a response in an event; `novelty` is a field that only a provider knows."""
STEPS = {*responses.PARTS, *responses.DONE_FIELD, "response.output_item"}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_sent_in_the_providers_format(name: str) -> None:
    case = REQUESTS[name]
    body = case.encoded("request" if "body" in case.row else "ask")
    target = endpoint(**case.whole("endpoint"))
    if "refuse" in case.row:
        with pytest.raises(Invalid) as caught:
            adapter(case.client, case.dialect, body).render_request(target)
        said, refuse = caught.value.message, case.row["refuse"]
        assert said[: len(refuse) - 3] + "..." == refuse if refuse[-3:] == "..." else said == refuse
        return
    translated = adapter(case.client, case.dialect, body)
    sent = translated.render_request(target)
    assert b"\n" not in sent or b"\n" in body
    if "holds" in case.row:
        assert [each for each in case.row["holds"] if each.encode() not in sent] == []
    else:
        assert json.loads(sent) == case.whole("send")
    lost = case.row.get("lose", [])
    assert sorted(translated.unsupported_parameters(target)) == sorted(lost)


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_shown_in_the_clients_format(name: str) -> None:
    case = REPLIES[name]
    translated = adapter(case.client, case.dialect, case.encoded("ask"))
    outcome = case.row.get("ends", "complete")
    if outcome != "complete":
        assert _failure(lambda: translated.parse_response(case.encoded("reply"))) == outcome
        return
    reading = translated.parse_response(case.encoded("reply"))
    shown = reading.render(IDENTITY, charge(reading))
    if "holds" in case.row:
        assert [each for each in case.row["holds"] if each.encode() not in shown] == []
        return
    assert json.loads(shown) == case.whole("show")
    assert _facts(reading) == case.whole("facts")
    if case.client == "responses":
        responses.check_response(json.loads(shown))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_shown_in_the_clients_format(name: str) -> None:
    case = STREAMS[name]
    stream = adapter(case.client, case.dialect, case.encoded("ask")).open_stream(IDENTITY)
    shown: list[bytes] = []

    def feed() -> None:
        for data in case.events():
            shown.append(stream.feed(data))  # noqa: PERF401 - what was shown before a failure counts

    outcome = _failure(feed)
    if outcome == "complete" and not stream.complete:
        outcome = "cut"
    assert outcome == case.row.get("ends", "complete")
    shown.append(stream.end(charge(stream)) if outcome == "complete" else stream.fail(CUT))
    whole = b"".join(shown)
    CHECKS[case.client].check_stream(whole)
    assert [each for each in case.row.get("holds", ()) if each.encode() not in whole] == []
    if "show" in case.row:
        assert _told(case.client, whole) == case.row["show"]
    facts = _facts(stream)
    assert {**facts, **case.row.get("facts", {})} == facts


def _failure(run: Any) -> Any:
    """Return `malformed`, the provider's error, or `complete` if nothing was raised."""
    try:
        run()
    except MalformedResponse:
        return "malformed"
    except ErrorEvent as error:
        return {"code": error.code, "message": error.message}
    return "complete"


def _facts(reading: AdaptedResponse | AdaptedStream) -> dict[str, Any]:
    """Return what is read of a reply for its charge and its record."""
    used = reading.reported
    return {
        "reported": None if used is None else _counts(used),
        "seen": {} if used == reading.seen else _counts(reading.seen),
        "finish": [reading.finish_reason, reading.native_finish_reason],
        "upstream": reading.upstream_id,
    }


def _counts(usage: Any) -> dict[str, int]:
    return {name: count for name, count in asdict(usage).items() if count}


def _told(client: str, stream: bytes) -> list[Any]:
    """Return a client's events, short: without what the check of the stream's grammar compares."""
    frames = [frame.partition(b"data: ")[2] for frame in stream.split(b"\n\n")[:-1]]
    return [_SHORT[client](json.loads(data)) for data in frames if data != b"[DONE]"]


def _short_chat(chunk: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk without the fields of all chunks, and a choice without null."""
    told = {name: value for name, value in chunk.items() if name not in OURS}
    told["choices"] = [
        {name: value for name, value in choice.items() if value not in (None, 0)}
        for choice in chunk["choices"]
    ]
    if "usage" in chunk:
        told["usage"] = _costs(chunk["usage"], "prompt_tokens", "completion_tokens")
    return told


def _short_message(event: dict[str, Any]) -> Any:
    """Return an event of a block by its number, and without null."""
    kind, number = event["type"], event.get("index")
    if kind == "message_start":
        return {kind: event["message"]["usage"]["input_tokens"]}
    if kind == "message_delta":
        usage = _costs(event.pop("usage"), "input_tokens", "output_tokens")
        return {kind: _given({**event, **event.pop("delta"), "type": None, "usage": usage})}
    if kind == "content_block_start":
        return {f"{number} start": event["content_block"]}
    if kind == "content_block_delta":
        return {f"{number} {event['delta'].pop('type')}": [*event["delta"].values()]}
    return f"{number} stop" if kind == "content_block_stop" else event


def _short_response(event: dict[str, Any]) -> Any:
    """Return an event of an item by its number; the item itself at its end."""
    kind = event["type"].removeprefix("response.")
    if event["type"] in responses.LIFECYCLE:
        told = _given({name: event["response"].get(name) for name in ENDS})
        return {kind: told} if told else kind
    name = f"{event.get('output_index')} {kind}"
    if kind == "output_item.done":
        return {name: event["item"]}
    if event["type"].rpartition(".")[0] in STEPS:
        return {name: event["delta"]} if "delta" in event else name
    return event


def _costs(usage: dict[str, Any], *counts: str) -> list[Any]:
    return [usage[name] for name in (*counts, "cost")]


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


_SHORT = {
    "chat": _short_chat,
    "completions": _short_chat,
    "messages": _short_message,
    "responses": _short_response,
}
