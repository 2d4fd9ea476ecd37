from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.api.asgi_client import Answer, call
from tollhouse.api.system import SystemRoutes
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.errors import Forbidden, MethodNotAllowed, NotFound, Unauthenticated
from tollhouse.observability.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping


class FakeSubject:
    def __init__(self, kind: KeyKind) -> None:
        self.kind = kind


class FakeAuthenticator:
    async def authenticate(self, key: str) -> FakeSubject:
        try:
            return FakeSubject(KeyKind(key))
        except ValueError:
            raise Unauthenticated(key) from None


class FakeReadiness:
    def __init__(self, found: dict[str, str]) -> None:
        self._found = found

    async def problems(self) -> Mapping[str, str]:
        return self._found


async def answer_to(
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    peer: str | None = "203.0.113.9",
    **problems: str,
) -> Answer:
    routes = SystemRoutes(
        version="1.2.3",
        openapi=lambda: b'{"openapi":"3.1.0"}',
        docs={"/docs": (b"text/html; charset=utf-8", b"<html>")},
        readiness=FakeReadiness(problems),  # type: ignore[arg-type]
        metrics=Metrics(),
        authenticator=FakeAuthenticator(),  # type: ignore[arg-type]
    )

    async def app(scope: dict[str, Any], receive: object, send: Any) -> None:
        del receive
        await routes(scope, dict(scope["headers"]), send)

    return await call(app, method, path, headers, peer=peer)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/", "application/json"),
        ("/healthz", "application/json"),
        ("/readyz", "application/json"),
        ("/openapi.json", "application/json"),
        ("/docs", "text/html; charset=utf-8"),
    ],
)
async def test_anybody_may_read_what_is_fixed(method: str, path: str, content_type: str) -> None:
    answer = await answer_to(method, path)
    assert (answer.status, answer.headers["content-type"]) == (200, content_type)
    assert answer.whole


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_it_is_only_read(method: str, path: str) -> None:
    with pytest.raises(MethodNotAllowed):
        await answer_to(method, path)


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/healthz/", "//", ""])
async def test_there_is_nothing_else(path: str) -> None:
    with pytest.raises(NotFound):
        await answer_to("GET", path)


async def test_readiness_says_what_stands_in_the_way() -> None:
    answer = await answer_to("GET", "/readyz", database="OSError")
    assert answer.status == 503
    assert answer.json() == {"status": "unavailable", "problems": {"database": "OSError"}}


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1"])
async def test_metrics_are_open_to_this_machine(peer: str) -> None:
    answer = await answer_to("GET", "/metrics", peer=peer)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"tollhouse_generations_in_flight 0.0" in answer.body


async def test_metrics_are_open_to_a_management_key() -> None:
    headers = {"authorization": "Bearer management"}
    assert (await answer_to("GET", "/metrics", headers)).status == 200


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ({}, Unauthenticated),
        ({"authorization": "Bearer nonsense"}, Unauthenticated),
        ({"x-api-key": "management"}, Unauthenticated),
        ({"authorization": "Bearer api"}, Forbidden),
        ({"authorization": "Bearer intern"}, Forbidden),
    ],
)
async def test_metrics_are_closed_to_everybody_else(
    headers: dict[str, str], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        await answer_to("GET", "/metrics", headers)


async def test_a_forwarded_request_is_not_from_this_machine() -> None:
    with pytest.raises(Unauthenticated):
        await answer_to("GET", "/metrics", {"x-forwarded-for": "203.0.113.9"}, peer="127.0.0.1")


async def test_of_two_who_want_the_description_at_once_one_has_it_rendered() -> None:
    running: list[int] = []

    def render() -> bytes:
        running.append(1)
        time.sleep(0.02)
        return b"{}"

    routes = SystemRoutes(
        version="1.2.3",
        openapi=render,
        docs={"/docs": (b"text/html; charset=utf-8", b"<html>")},
        readiness=FakeReadiness({}),  # type: ignore[arg-type]
        metrics=Metrics(),
        authenticator=FakeAuthenticator(),  # type: ignore[arg-type]
    )

    async def app(scope: dict[str, Any], receive: object, send: Any) -> None:
        del receive
        await routes(scope, {}, send)

    answers = await asyncio.gather(*(call(app, "GET", "/openapi.json") for _ in range(3)))
    assert [answer.body for answer in answers] == [b"{}"] * 3
    assert len(running) == 1
