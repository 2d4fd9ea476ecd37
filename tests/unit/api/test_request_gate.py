"""The gate over fakes: who gets past which check, and what becomes of failures behind it."""

from __future__ import annotations

import asyncio
import errno
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tests.support.clock import FakeClock
from tests.unit.api.asgi_client import Answer, Client, call, scope
from tests.unit.inference.fakes import SUBJECT
from tollhouse.api.asgi import JSON, respond
from tollhouse.api.request_gate import RequestGate, Routes
from tollhouse.api.system import Recovery
from tollhouse.identity.access import caller_of
from tollhouse.identity.types import LocalOperator
from tollhouse.kernel.errors import (
    Conflict,
    NotFound,
    ProviderFailure,
    ProviderUnavailable,
    TollhouseError,
    Unauthenticated,
    error_body,
)
from tollhouse.kernel.request_scope import own_origin
from tollhouse.observability.metrics import Metrics
from tollhouse.settings.sections import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.api.asgi import Receive, Scope, Send

KEY = {"authorization": "Bearer sk-th-v1-good"}
APP = "https://app.example"


class FakeAuthenticator:
    async def authenticate(self, key: str) -> object:
        if key != "sk-th-v1-good":
            message = "Invalid API key."
            raise Unauthenticated(message)
        return SUBJECT


class Behind:
    """What lies behind the gate; answers 200, or fails as the test says."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.scopes: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.error: BaseException | None = None
        self.fails_late = False

    async def hot(self, scope: Scope, headers: object, receive: Receive, send: Send) -> None:
        del headers
        await self._answer("hot", scope, receive, send)

    async def control(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer("control", scope, receive, send)

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        await self.hot(scope, headers, receive, send)

    def refuse(self, error: TollhouseError, generation_id: str | None) -> Mapping[str, object]:
        del generation_id
        return error_body(error)

    async def system(self, scope: Scope, headers: object, send: Send) -> None:
        del headers
        await self._answer("system", scope, None, send)

    async def _answer(self, name: str, scope: Scope, receive: Receive | None, send: Send) -> None:
        self.called.append(name)
        self.scopes.append(dict(scope))
        if receive is not None:
            self.bodies.append((await receive())["body"])
        if self.error is not None and not self.fails_late:
            raise self.error
        await respond(send, 200, [JSON], b"{}")
        if self.error is not None:
            raise self.error


class World:
    def __init__(self, *, local: bool = False, **settings: Any) -> None:
        self.behind = Behind()
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.recovery = Recovery()
        routes = Routes(
            hot={"/chat/completions": self.behind},
            control=self.behind.control,
            system=self.behind.system,  # type: ignore[arg-type]
            recovery=self.recovery,
        )
        self.front = RequestGate(
            routes,
            FakeAuthenticator(),  # type: ignore[arg-type]
            ServerSettings(**settings),
            self.clock,
            self.metrics,
            local=local,
        )

    async def call(
        self, method: str, path: str, headers: dict[str, str] | None = None, **request: Any
    ) -> Answer:
        return await call(self.front, method, path, headers, **request)

    def refused(self, status: int) -> float | None:
        name = "tollhouse_http_refusals_total"
        return self.metrics.registry.get_sample_value(name, {"status": str(status)})


def error_of(answer: Answer) -> dict[str, Any]:
    assert answer.whole
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, Any] = answer.json()["error"]
    assert type(error["code"]) is int
    assert error["code"] == answer.status
    return error


# Where requests go


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({"host": "gw.example:8080"}, "http://gw.example:8080"),
        ({"host": "GW.example"}, "http://gw.example"),
        ({"host": "inner", "x-forwarded-host": "gw.example"}, "http://gw.example"),
        ({"host": "gw.example", "x-forwarded-proto": "https"}, "https://gw.example"),
        ({"host": "[::1]:8080"}, "http://[::1]:8080"),
        *(
            ({"host": host}, "http://localhost")
            for host in ("a/b", "a@b", "[", "[1]", "a:b", "", "ä")
        ),
    ],
)
async def test_a_route_learns_the_address_that_its_caller_wrote(
    headers: dict[str, str], origin: str
) -> None:
    w = World(trusted_proxies=["10.0.0.0/8"])
    answer = await w.call("GET", "/v1/interns", KEY | headers, peer="10.0.0.1")
    assert answer.status == 200
    assert own_origin(w.behind.scopes[-1]) == origin


async def test_a_proxy_that_is_not_trusted_does_not_say_the_address() -> None:
    w = World()
    headers = KEY | {"host": "gw.example", "x-forwarded-host": "evil.example"}
    await w.call("GET", "/v1/interns", headers)
    assert own_origin(w.behind.scopes[-1]) == "http://gw.example"


@pytest.mark.parametrize(
    ("method", "path", "behind"),
    [
        ("POST", "/v1/chat/completions", "hot"),
        ("POST", "/api/v1/chat/completions", "hot"),
        ("GET", "/v1/key", "control"),
        ("GET", "/v1/models", "control"),
        ("POST", "/v1/chat/completions/", "control"),
        ("POST", "/v1//chat/completions", "control"),
        ("GET", "/healthz", "system"),
        ("GET", "/", "system"),
        ("GET", "/v1", "system"),
        ("POST", "/v1x/chat/completions", "system"),
        ("POST", "/chat/completions", "system"),
    ],
)
async def test_a_request_goes_to_its_route(method: str, path: str, behind: str) -> None:
    w = World()
    assert (await w.call(method, path, KEY)).status == 200
    assert w.behind.called == [behind]


async def test_the_control_plane_sees_the_path_below_the_version_and_the_body() -> None:
    w = World()
    await w.call("PATCH", "/api/v1/keys/x", KEY, body=b'{"a":1}')
    assert w.behind.scopes[0]["path"] == "/keys/x"
    assert w.behind.bodies == [b'{"a":1}']
    assert caller_of(w.behind.scopes[0]) == SUBJECT


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_a_wrong_method_of_a_hot_route_is_a_405_that_names_the_right_one(method: str) -> None:
    answer = await World().call(method, "/v1/chat/completions", KEY)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    error_of(answer)


async def test_what_is_no_http_is_left_alone() -> None:
    w = World()
    client = Client()
    await w.front({"type": "lifespan"}, client.receive, client.send)
    assert client.answer.messages == []


# Keys


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/key", "/v1/no/such/route"])
@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "No auth credentials found"),
        ({"authorization": "Bearer "}, "No auth credentials found"),
        ({"authorization": "Bearer nonsense"}, "Invalid API key."),
        ({"authorization": "Bearer \xff\xfe"}, "Invalid API key."),
        ({"x-api-key": "sk-th-v1-good"}, "No auth credentials found"),
    ],
)
async def test_without_a_good_key_there_is_a_401(
    path: str, headers: dict[str, str], message: str
) -> None:
    w = World()
    answer = await w.call("POST", path, headers)
    assert error_of(answer) == {"code": 401, "message": message}
    assert answer.headers["www-authenticate"] == "Bearer"
    assert w.behind.called == []


@pytest.mark.parametrize("path", ["/v1/interns", "/v1/interns/x", "/v1/vault", "/v1/vault/secrets"])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer nonsense"}])
async def test_interns_and_the_vault_have_one_text_for_both(
    path: str, headers: dict[str, str]
) -> None:
    answer = await World().call("GET", path, headers)
    assert error_of(answer) == {"code": 401, "message": "Invalid or missing API key"}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_catalogue_needs_no_key(method: str) -> None:
    w = World()
    assert (await w.call(method, "/v1/models")).status == 200
    assert "tollhouse.caller" not in w.behind.scopes[0]


async def test_at_the_control_socket_the_caller_is_the_operator() -> None:
    w = World(local=True, max_requests_per_address_per_minute=1)
    for _ in range(3):
        assert (await w.call("GET", "/v1/keys", peer=None)).status == 200
    assert isinstance(caller_of(w.behind.scopes[0]), LocalOperator)


# Browsers


async def test_a_listed_origin_may_call_and_read() -> None:
    answer = await World(cors_origins=[APP]).call("GET", "/v1/key", KEY | {"origin": APP})
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "", "https://gw.example"])
@pytest.mark.parametrize("path", ["/v1/key", "/v1/models", "/healthz"])
async def test_another_origin_is_a_400(origin: str, path: str) -> None:
    w = World(cors_origins=[APP])
    answer = await w.call("GET", path, KEY | {"origin": origin})
    assert error_of(answer)["code"] == 400
    assert "access-control-allow-origin" not in answer.headers
    assert w.behind.called == []


async def test_our_own_origin_may_call() -> None:
    assert (
        await World().call("GET", "/v1/key", KEY | {"origin": "http://gw.example"})
    ).status == 200


@pytest.mark.parametrize(("peer", "status"), [("10.0.0.1", 200), ("203.0.113.9", 400), (None, 400)])
async def test_our_own_origin_behind_a_trusted_proxy_has_the_proxys_scheme(
    peer: str | None, status: int
) -> None:
    w = World(trusted_proxies=["10.0.0.0/8"])
    headers = KEY | {"origin": "https://gw.example", "x-forwarded-proto": "https"}
    assert (await w.call("POST", "/v1/keys", headers, peer=peer)).status == status


async def test_a_preflight_carries_no_key() -> None:
    w = World(cors_origins=[APP])
    ask = {"origin": APP, "access-control-request-method": "POST"}
    answer = await w.call("OPTIONS", "/v1/chat/completions", ask)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert w.behind.called == []


async def test_a_preflight_of_another_origin_is_a_400() -> None:
    ask = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = await World(cors_origins=[APP]).call("OPTIONS", "/v1/chat/completions", ask)
    assert error_of(answer)["code"] == 400


async def test_a_refusal_can_be_read_by_a_listed_origin() -> None:
    answer = await World(cors_origins=[APP]).call("GET", "/v1/key", {"origin": APP})
    assert answer.status == 401
    assert answer.headers["access-control-allow-origin"] == APP


async def test_the_origin_is_looked_at_before_the_key() -> None:
    answer = await World().call("GET", "/v1/key", {"origin": "https://evil.example"})
    assert error_of(answer)["code"] == 400


# Regional host names


REGIONAL = {"regional_hostnames": ["eu.*"]}


@pytest.mark.parametrize(
    "path",
    ["/v1/key", "/v1/batches", "/v1/interns/x", "/v1/vault/secrets", "/v1/models", "/v1/credits"],
)
async def test_a_regional_host_name_is_refused_without_metadata(path: str) -> None:
    answer = await World(**REGIONAL).call("GET", path, KEY | {"host": "eu.gw.example"})
    assert error_of(answer) == {
        "code": 403,
        "message": "This operation is not available on a regional hostname.",
    }


async def test_what_is_no_part_of_the_api_is_available_on_a_regional_host_name() -> None:
    answer = await World(**REGIONAL).call("GET", "/healthz", KEY | {"host": "eu.gw.example"})
    assert answer.status == 200


async def test_the_key_is_looked_at_before_the_host_name() -> None:
    assert (await World(**REGIONAL).call("GET", "/v1/key", {"host": "eu.gw.example"})).status == 401


@pytest.mark.parametrize(("peer", "status"), [("10.0.0.1", 403), ("203.0.113.9", 200), (None, 200)])
async def test_a_forwarded_host_counts_only_from_a_trusted_proxy(
    peer: str | None, status: int
) -> None:
    w = World(**REGIONAL, trusted_proxies=["10.0.0.0/8"])
    headers = KEY | {"x-forwarded-host": "eu.gw.example"}
    assert (await w.call("GET", "/v1/key", headers, peer=peer)).status == status


# The rate of an address


async def test_too_many_requests_of_an_address_are_a_429_that_says_when() -> None:
    w = World(max_requests_per_address_per_minute=2)
    statuses = [(await w.call("GET", "/v1/key", KEY)).status for _ in range(3)]
    assert statuses == [200, 200, 429]
    answer = await w.call("GET", "/v1/key", KEY)
    resets_at = w.clock.now() + timedelta(seconds=30)
    assert answer.headers["x-ratelimit-limit"] == "2"
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert answer.headers["x-ratelimit-reset"] == str(int(resets_at.timestamp() * 1000))
    assert "retry-after" not in answer.headers
    assert error_of(answer)["metadata"] == {"error_type": "rate_limit_exceeded"}
    assert (await w.call("GET", "/v1/key", KEY, peer="203.0.113.10")).status == 200
    w.clock.advance(30)
    assert (await w.call("GET", "/v1/key", KEY)).status == 200
    assert w.refused(429) == 2


async def test_a_chat_with_an_intern_is_told_when_to_try_again() -> None:
    w = World(max_requests_per_address_per_minute=1)
    chat, other = "/v1/interns/an-id/chat/completions", "/v1/interns/an-id"
    await w.call("POST", chat)
    answer = await w.call("POST", chat)
    assert answer.headers["retry-after"] == "60"
    assert error_of(answer)["metadata"] == {"reason": "rate_limited", "retryable": True}
    assert "retry-after" not in (await w.call("GET", other)).headers


async def test_behind_a_trusted_proxy_the_client_is_counted() -> None:
    w = World(max_requests_per_address_per_minute=1, trusted_proxies=["10.0.0.0/8"])
    for client in ("203.0.113.1", "203.0.113.2", "9.9.9.9, 203.0.113.3"):
        headers = KEY | {"x-forwarded-for": client}
        assert (await w.call("GET", "/v1/key", headers, peer="10.0.0.1")).status == 200
    spoofed = KEY | {"x-forwarded-for": "8.8.8.8, 203.0.113.1"}
    assert (await w.call("GET", "/v1/key", spoofed, peer="10.0.0.1")).status == 429


# Failures behind it


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("No such key."), 404),
        (Conflict("Busy.", retry_after=3), 409),
        (ProviderUnavailable("Acme failed.", provider_name="Acme"), 502),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/keys", "/healthz"])
async def test_an_error_becomes_its_envelope(error: ProviderFailure, code: int, path: str) -> None:
    w = World()
    w.behind.error = error
    answer = await w.call("POST", path, KEY)
    assert error_of(answer)["message"] == error.message
    assert answer.status == code
    assert answer.headers.get("retry-after") == (None if code != 409 else "3")
    assert w.refused(code) == 1


@pytest.mark.parametrize("error", [RuntimeError("the secret is 42"), RecursionError("42")])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/keys", "/healthz"])
async def test_an_unexpected_error_shows_nothing(error: Exception, path: str) -> None:
    w = World()
    w.behind.error = error
    with capture_logs():
        answer = await w.call("POST", path, KEY)
    assert error_of(answer)["code"] == 500
    assert b"42" not in answer.body


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/keys", "/v1/interns/x"])
async def test_a_full_disk_is_a_503_and_one_line_in_the_log(path: str) -> None:
    w = World()
    w.behind.error = OSError(errno.ENOSPC, "No space left on device", "/data/42")
    with capture_logs() as lines:
        answer = await w.call("POST", path, KEY)
    assert error_of(answer)["code"] == 503
    assert answer.headers["retry-after"] == "5"
    assert b"42" not in answer.body
    assert [line["event"] for line in lines if line["log_level"] == "error"] == [
        "storage_unavailable"
    ]


@pytest.mark.parametrize("error", [RuntimeError("x"), NotFound("x")])
async def test_after_the_head_left_an_error_adds_nothing(error: Exception) -> None:
    w = World()
    w.behind.error, w.behind.fails_late = error, True
    with capture_logs():
        answer = await w.call("GET", "/v1/keys", KEY)
    assert (answer.status, answer.body) == (200, b"{}")


async def test_a_body_over_the_limit_of_the_control_plane_is_a_413() -> None:
    w = World(control_body_limit_bytes=1024)
    answer = await w.call("POST", "/v1/keys", KEY, body=b"x" * 1025)
    assert error_of(answer)["code"] == 413
    assert w.behind.called == []


async def test_a_client_that_leaves_during_its_body_gets_no_answer() -> None:
    w = World()
    client = Client(body=None)
    client.left.set()
    await w.front(scope("POST", "/v1/keys", KEY), client.receive, client.send)
    assert client.answer.messages == []


# A start that recovers what a killed server left


@pytest.mark.parametrize("path", ["/v1/batches", "/v1/interns/ada", "/api/v1/batches/b1"])
async def test_batches_and_interns_wait_until_recovery_is_over(path: str) -> None:
    world = World()
    world.recovery.begin()
    asked = asyncio.create_task(world.call("GET", path, KEY))
    await asyncio.sleep(0)
    assert world.behind.called == []
    world.recovery.finish()
    assert (await asked).status == 200


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/chat/completions"), ("GET", "/v1/key"), ("GET", "/healthz")]
)
async def test_everything_else_is_answered_during_recovery(method: str, path: str) -> None:
    world = World()
    world.recovery.begin()
    assert (await world.call(method, path, KEY)).status == 200


async def test_who_has_waited_long_for_recovery_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Recovery, "PATIENCE_SECONDS", 0.01)
    world = World()
    world.recovery.begin()
    answer = await world.call("GET", "/v1/batches", KEY)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
