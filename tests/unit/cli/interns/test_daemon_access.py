"""The way to an intern, and what its refusals are to a person."""

import pytest

from tests.support.tables import tables
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.daemon import DaemonCredentials, daemon_refusal, parse_access
from tollhouse.kernel.secret import Secret

CASES = tables(__file__)


def test_the_token_is_not_shown() -> None:
    assert "canary" not in repr(DaemonCredentials("http://127.0.0.1:1", Secret("canary")))


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8000", "https://1d.interns.example.com", "http://localhost"]
)
def test_the_gateway_tells_an_origin_and_a_token(origin: str) -> None:
    access = parse_access({"origin": origin, "token": "a-B_9", "viewer": {}})
    assert (access.origin, access.token.reveal()) == (origin, "a-B_9")


@pytest.mark.parametrize("reply", CASES["what_is_no_way_is_refused"], ids=str)
def test_what_is_no_way_is_refused(reply: object) -> None:
    with pytest.raises(CommandFailed, match="the gateway gave no address of the intern"):
        parse_access(reply)


@pytest.mark.parametrize(
    ("origin", "near"), CASES["an_origin_on_this_machine_is_reached_past_any_proxy"]
)
def test_an_origin_on_this_machine_is_reached_past_any_proxy(origin: str, *, near: bool) -> None:
    assert DaemonCredentials(origin, Secret("x")).is_near is near


def test_what_may_pass_says_so() -> None:
    assert daemon_refusal(503, b"").retryable
    assert daemon_refusal(401, b"").retryable
    assert not daemon_refusal(404, b"").retryable
