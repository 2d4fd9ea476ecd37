"""What the proxy answers where it refuses: HTTP that any client reads, in words of its own."""

from __future__ import annotations

import json
from http import HTTPStatus

import h11
import httptools
import pytest

from tollhouse.vault.egress import refusals
from tollhouse.vault.egress.refusals import PASSWORD, REASON_HEADER, Refusal, Refused

ALL = [each for each in vars(refusals).values() if isinstance(each, Refusal)]
each_refusal = pytest.mark.parametrize("refusal", ALL, ids=[each.reason for each in ALL])


def read(data: bytes) -> tuple[h11.Response, bytes, h11.Connection]:
    """Return an answer as a client reads it."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "a.com")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return response, body, client


@each_refusal
def test_an_answer_is_whole_and_the_last_one(refusal: Refusal) -> None:
    response, body, client = read(refusal.answer())
    headers = dict(response.headers)
    assert (response.status_code, response.http_version) == (refusal.status, b"1.1")
    assert response.reason == HTTPStatus(refusal.status).phrase.encode()
    assert int(headers[b"content-length"]) == len(body)
    assert headers[b"connection"] == b"close"
    assert client.trailing_data == (b"", False)
    assert client.their_state is h11.MUST_CLOSE


@each_refusal
def test_another_reader_reads_the_same(refusal: Refusal) -> None:
    seen: dict[bytes, bytes] = {}

    class Reader:
        def on_header(self, name: bytes, value: bytes) -> None:
            seen[name.lower()] = value

        def on_body(self, body: bytes) -> None:
            seen[b"body"] = body

    parser = httptools.HttpResponseParser(Reader())
    parser.feed_data(refusal.answer())
    assert parser.get_status_code() == refusal.status
    assert not parser.should_keep_alive()
    assert seen[b"body"] == refusal.body()


@each_refusal
def test_it_says_why_in_the_header_and_in_the_body(refusal: Refusal) -> None:
    response, body, _ = read(refusal.answer())
    headers = dict(response.headers)
    assert REASON_HEADER == b"x-tollhouse-egress"
    assert headers[REASON_HEADER] == refusal.reason.encode()
    assert headers[b"content-type"] == b"application/json"
    assert body.endswith(b"}\n")
    assert json.loads(body) == {
        "error": {
            "code": refusal.status,
            "message": refusal.message,
            "metadata": {"reason": refusal.reason},
        }
    }


@each_refusal
def test_only_a_missing_password_asks_for_one(refusal: Refusal) -> None:
    response, _, _ = read(refusal.answer())
    challenge = dict(response.headers).get(b"proxy-authenticate")
    assert challenge == (b'Basic realm="tollhouse"' if refusal is PASSWORD else None)


def test_every_refusal_has_a_reason_of_its_own_and_words_of_its_own() -> None:
    assert len(ALL) > 20
    assert len({each.reason for each in ALL}) == len(ALL)
    assert len({each.message for each in ALL}) == len(ALL)


@each_refusal
def test_a_message_is_a_sentence_and_a_reason_a_name(refusal: Refusal) -> None:
    assert refusal.reason.isidentifier()
    assert refusal.reason.islower()
    assert refusal.message[0].isupper()
    assert refusal.message.endswith((".", "again."))
    assert 400 <= refusal.status < 600


def test_what_is_raised_says_the_reason_and_nothing_of_the_request() -> None:
    refused = Refused(PASSWORD)
    assert (str(refused), refused.refusal) == ("password", PASSWORD)
