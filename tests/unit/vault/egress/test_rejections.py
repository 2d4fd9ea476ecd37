"""What the proxy answers where it refuses: HTTP that any client reads, in words of its own."""

import json
from http import HTTPStatus

import h11
import pytest

from tollhouse.vault.egress import rejections
from tollhouse.vault.egress.rejections import PASSWORD, Rejection

ALL = [each for each in vars(rejections).values() if isinstance(each, Rejection)]


def read(data: bytes) -> tuple[h11.Response, bytes, h11.Connection]:
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


@pytest.mark.parametrize("rejection", ALL, ids=[each.reason for each in ALL])
def test_an_answer_is_whole_says_why_and_is_the_last_one(rejection: Rejection) -> None:
    response, body, client = read(rejection.answer())
    headers = dict(response.headers)
    assert (response.status_code, response.http_version) == (rejection.status, b"1.1")
    assert response.reason == HTTPStatus(rejection.status).phrase.encode()
    assert int(headers[b"content-length"]) == len(body)
    assert headers[b"connection"] == b"close"
    assert client.trailing_data == (b"", False)
    assert client.their_state is h11.MUST_CLOSE
    assert headers[b"x-tollhouse-egress"] == rejection.reason.encode()
    assert headers[b"content-type"] == b"application/json"
    assert body.endswith(b"}\n")
    told = {"code": rejection.status, "message": rejection.message}
    assert json.loads(body) == {"error": {**told, "metadata": {"reason": rejection.reason}}}
    challenge = b'Basic realm="tollhouse"' if rejection is PASSWORD else None
    assert headers.get(b"proxy-authenticate") == challenge


def test_every_refusal_has_a_reason_of_its_own_and_words_of_its_own() -> None:
    assert len(ALL) > 20
    assert len({each.reason for each in ALL}) == len(ALL)
    assert len({each.message for each in ALL}) == len(ALL)
