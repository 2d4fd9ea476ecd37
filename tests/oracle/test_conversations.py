"""Random conversations: what they are drawn from, and a checkout's gateway compared with itself."""

from pathlib import Path
from random import Random

import pytest

from tests.oracle import http_replies
from tests.oracle.http_requests import Conversation
from tests.oracle.http_run import compare
from tests.oracle.http_servers import Lane
from tests.support.providers.upstream_server import ReceivedRequest

DIALECTS = ("chat/completions", "responses", "messages", "completions", "embeddings")
LANE = Lane("old", 3)


def received(path: str, body: bytes) -> ReceivedRequest:
    return ReceivedRequest("POST", f"/old/3/chat/v1/{path}", {}, body)


def test_what_a_client_asks_is_drawn_from_the_seed_and_the_number() -> None:
    asked = [Conversation(seed, number, LANE).first() for seed in (1, 2) for number in range(40)]
    again = [Conversation(1, number, LANE).first() for number in range(40)]
    assert asked[:40] == again
    assert asked[40:] != again


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_the_provider_says_is_drawn_from_the_conversation(dialect: str) -> None:
    for number in range(40):
        request = received(dialect, Conversation(1, number, LANE).first().body)
        once, twice = (http_replies.answer(Random(number), request) for _ in range(2))
        assert once == twice


def test_a_request_that_the_provider_does_not_know_is_refused() -> None:
    [said] = http_replies.answer(Random(0), received("unheard_of", b"{}"))
    assert isinstance(said, bytes)
    assert not said.startswith(b"HTTP/1.1 200")


@pytest.mark.soak
def test_a_gateway_is_equal_to_itself(soak_factor: int) -> None:
    result = compare(Path(__file__).parents[2], 20 * soak_factor, {})
    assert result.found == []
    assert result.requests >= 2 * 20 * soak_factor
