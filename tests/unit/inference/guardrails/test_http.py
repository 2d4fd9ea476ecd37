"""A guardrail over a fake transport: what it sends, and what it makes of whatever comes back."""

import pytest

from tests.support.seams.inference import ALLOWED, GuardrailVerdict, HttpGuardrail
from tests.unit.inference.fake_upstream import FakeResponse, FakeUpstream
from tollhouse.outbound.http.port import (
    ConnectFailed,
    ConnectionLost,
    HeadTimeout,
    PoolTimeout,
    TotalTimeout,
    UpstreamError,
)

YES = b'{"allowed": true}'


def guardrail(upstream: FakeUpstream) -> HttpGuardrail:
    return HttpGuardrail(
        url="https://guard.example/judge",
        headers=[("authorization", "Bearer hush-hush")],
        seconds=1.5,
        on_failure="refuse",
        upstream=upstream,
    )


async def test_a_question_goes_out_as_a_post_with_its_credentials_and_one_deadline() -> None:
    upstream = FakeUpstream(FakeResponse(pieces=[YES]))
    assert await guardrail(upstream).ask(b"{}") == ALLOWED
    [request] = upstream.requests
    assert (request.method, request.url) == ("POST", "https://guard.example/judge")
    assert request.body == b"{}"
    assert dict(request.headers) == {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "tollhouse",
        "authorization": "Bearer hush-hush",
    }
    assert request.limits.total == 1.5


@pytest.mark.parametrize("status", [199, 302, 400, 401, 404, 429, 500, 503])
async def test_another_status_is_no_verdict_whatever_it_says(status: int) -> None:
    response = FakeResponse(status, pieces=[YES])
    verdict = await guardrail(FakeUpstream(response)).ask(b"{}")
    assert verdict == GuardrailVerdict("failed", reason=f"status {status}")
    assert response.closed == 1


@pytest.mark.parametrize(
    "error",
    [
        ConnectFailed("x", sent=False),
        PoolTimeout("x", sent=False),
        HeadTimeout("x", sent=True),
        TotalTimeout("x", sent=True),
    ],
)
async def test_an_exchange_that_fails_is_no_verdict(error: UpstreamError) -> None:
    verdict = await guardrail(FakeUpstream(error)).ask(b"{}")
    assert verdict == GuardrailVerdict("failed", reason=type(error).__name__)


async def test_an_answer_that_is_cut_is_no_verdict() -> None:
    response = FakeResponse(pieces=[YES], broken=ConnectionLost("x", sent=True))
    verdict = await guardrail(FakeUpstream(response)).ask(b"{}")
    assert verdict == GuardrailVerdict("failed", reason="ConnectionLost")
    assert response.closed == 1


async def test_an_answer_that_is_too_large_is_no_verdict() -> None:
    response = FakeResponse(pieces=[YES, b" " * 65_536])
    verdict = await guardrail(FakeUpstream(response)).ask(b"{}")
    assert verdict == GuardrailVerdict("failed", reason="ResponseTooLarge")


async def test_nothing_of_it_shows_its_secret() -> None:
    upstream = FakeUpstream(FakeResponse(500, pieces=[b"hush-hush"]))
    own = guardrail(upstream)
    verdict = await own.ask(b"the prompt")
    assert "hush-hush" not in f"{own!r}{own}{verdict!r}"
    assert "the prompt" not in repr(upstream.requests)


async def test_what_it_found_does_not_show_its_own_credentials() -> None:
    found = [b'{"allowed": false, "patterns": ["Bearer hush-hush", "hush-hus\\u0068"]}']
    verdict = await guardrail(FakeUpstream(FakeResponse(pieces=found))).ask(b"{}")
    assert verdict == GuardrailVerdict("refused", ("Bearer *********", "*" * 14))
