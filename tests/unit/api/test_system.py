from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.seams.api import (
    ControlPlane,
    LateControlPlane,
    Readiness,
    Recovery,
    SystemRoutes,
    respond,
)
from tests.support.seams.identity import KeyKind
from tests.unit.api.asgi_client import Answer, call
from tollhouse.kernel.errors import Unauthenticated, Unavailable
from tollhouse.observability.metrics import Metrics


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


async def describe() -> bytes:
    return b'{"openapi":"3.1.0"}'


async def answer_to(
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    peer: str | None = "203.0.113.9",
    **problems: str,
) -> Answer:
    routes = SystemRoutes(
        version="1.2.3",
        openapi=describe,
        docs={"/docs": (b"text/html; charset=utf-8", b"<html>")},
        readiness=FakeReadiness(problems),  # type: ignore[arg-type]
        metrics=Metrics(),
        authenticator=FakeAuthenticator(),  # type: ignore[arg-type]
    )

    async def app(scope: dict[str, Any], receive: object, send: Any) -> None:
        del receive
        await routes(scope, dict(scope["headers"]), send)

    return await call(app, method, path, headers, peer=peer)


async def test_readiness_says_what_stands_in_the_way() -> None:
    answer = await answer_to("GET", "/readyz", database="OSError")
    assert answer.status == 503
    assert answer.json() == {"status": "unavailable", "problems": {"database": "OSError"}}


class AnsweringDatabase:
    async def ping(self) -> None:
        pass


async def test_a_gateway_is_ready_once_its_control_plane_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Recovery, "PATIENCE_SECONDS", 0.01)
    late = LateControlPlane()
    readiness = Readiness(AnsweringDatabase(), late)  # type: ignore[arg-type]
    assert list(await readiness.problems()) == ["start"]
    late.open(control_plane())
    assert await readiness.problems() == {}


async def test_a_gateway_that_stops_while_it_starts_is_waited_for_by_nobody() -> None:
    readiness = Readiness(AnsweringDatabase(), LateControlPlane())  # type: ignore[arg-type]
    readiness.stopping = True
    assert list(await readiness.problems()) == ["shutdown"]


def control_plane() -> ControlPlane:
    async def app(scope: object, receive: object, send: Any) -> None:
        del scope, receive
        await respond(send, 200, [], b"here")

    return ControlPlane(app, lambda: b"described")


async def test_who_has_waited_long_for_the_control_plane_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Recovery, "PATIENCE_SECONDS", 0.01)
    late = LateControlPlane()
    with pytest.raises(Unavailable, match="still starting") as refused:
        await call(late, "GET", "/keys")
    assert refused.value.retry_after == 1
    late.open(control_plane())
    assert (await call(late, "GET", "/keys")).body == b"here"


async def test_who_has_waited_long_for_recovery_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Recovery, "PATIENCE_SECONDS", 0.01)
    recovery = Recovery()
    await recovery.wait()
    recovery.begin()
    with pytest.raises(Unavailable) as refused:
        await recovery.wait()
    assert refused.value.retry_after == 1
    recovery.finish()
    await recovery.wait()
