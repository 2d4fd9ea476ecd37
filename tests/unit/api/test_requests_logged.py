"""Every request is one line of the log, which names nothing that its sender chose."""

import asyncio
import errno
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter
from structlog.testing import capture_logs

from tests.support.clock import FakeClock
from tests.support.seams.api import (
    JSON,
    Inference,
    LargeBodies,
    RequestGate,
    Routes,
    Scope,
    Send,
    control_app,
    respond,
)
from tests.support.seams.inference import FORMATS, Steps, failure
from tests.unit.api.asgi_client import Answer, Client, call, scope
from tests.unit.inference.fakes import (
    MODEL,
    SUBJECT,
    FakeProvider,
    FakeReply,
    FakeSettler,
    PipelineFixture,
    steps,
    stream_reply,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import COST, CUT
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.kernel.money import format_credits
from tollhouse.observability.logging import configure_logging
from tollhouse.observability.metrics import Metrics
from tollhouse.settings.sections import ServerSettings

KEY_TEXT = "sk-th-v1-goodgoodgoodgood"
KEY = {"authorization": f"Bearer {KEY_TEXT}"}
CHAT = "/v1/chat/completions"
PRIVATE = "nobody-may-read-this"
MESSAGES = [{"role": "user", "content": PRIVATE}]


class FakeAuthenticator:
    async def authenticate(self, key: str) -> object:
        if key != KEY_TEXT:
            message = "Invalid API key."
            raise Unauthenticated(message)
        return SUBJECT


def control() -> APIRouter:
    router = APIRouter()

    @router.get("/things/{name}")
    async def thing(name: str) -> dict[str, str]:
        if name == "full":
            raise OSError(errno.ENOSPC, "No space left on device", PRIVATE)
        return {"name": name}

    return router


class Gateway:
    """A front with one hot route over fakes, one of the control plane, and its log."""

    def __init__(self, answer: FakeReply | BaseException, *, local: bool = False) -> None:
        self.out = io.StringIO()
        configure_logging("info", "json", self.out)
        self.provider = FakeProvider(answer)
        self.fixture = PipelineFixture([self.provider], FakeSettler())
        settings = ServerSettings()
        clock = FakeClock()
        spoken = FORMATS["/chat/completions"]
        large = LargeBodies.of(settings, Steps())
        hot = {
            "/chat/completions": Inference(spoken, self.fixture.pipeline, clock, settings, large)
        }
        routes = Routes(hot=hot, control=control_app(control()), system=self.system)  # type: ignore[arg-type]
        self.front = RequestGate(
            routes, FakeAuthenticator(), settings, clock, Metrics(), local=local
        )  # type: ignore[arg-type]

    async def system(self, scope: Scope, headers: object, send: Send) -> None:
        del headers
        await respond(send, 200, [JSON], b"{}")
        if scope["path"] == "/late":
            raise RuntimeError(PRIVATE)

    async def chat(self, **fields: Any) -> Answer:
        body = {"model": MODEL, "messages": MESSAGES} | fields
        return await call(self.front, "POST", CHAT, KEY, body=json.dumps(body).encode())

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def requests(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == "request"]


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("tollhouse")
    before = root.handlers, root.level, ours.level, logging.raiseExceptions
    yield
    root.handlers, root.level, ours.level, logging.raiseExceptions = before


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_is_logged_with_its_model_its_cost_and_its_generation(
    stream: bool,  # noqa: FBT001
) -> None:
    gateway = Gateway(stream_reply() if stream else whole_reply())
    answer = await gateway.chat(stream=stream)
    [line] = gateway.requests()
    assert {name: line[name] for name in line if name not in {"timestamp", "ms"}} == {
        "event": "request",
        "level": "info",
        "method": "POST",
        "route": "/chat/completions",
        "status": 200,
        "first_token_ms": 0,
        "model": MODEL,
        "provider": "Acme",
        "cost": format_credits(COST),
        "key_label": SUBJECT.label,
        "generation": answer.headers["x-generation-id"],
    }


async def test_a_reply_that_its_client_left_is_logged_when_it_is_booked() -> None:
    reply = stream_reply()
    reply.body.insert(2, asyncio.Event())
    gateway, client = Gateway(reply), Client()
    client.body = json.dumps({"model": MODEL, "stream": True, "messages": MESSAGES}).encode()
    client.scope = scope("POST", CHAT, KEY)
    task = asyncio.ensure_future(gateway.front(client.scope, client.receive, client.send))
    await steps()
    assert gateway.requests() == []
    client.leave()
    await task
    await steps()
    [line] = gateway.requests()
    assert line["status"] == 499
    assert line["generation"] == gateway.fixture.settler.booked[0].id


async def test_a_client_that_left_before_anything_was_sent_is_logged_too() -> None:
    gateway = Gateway(whole_reply())
    exchange = gateway.fixture.begin()
    heard: list[int] = []
    exchange.on_outcome = lambda outcome: heard.append(outcome.status)
    exchange.client_left()
    await steps()
    assert (heard, gateway.provider.calls) == ([499], [])


async def test_a_providers_failure_is_a_warning_beside_the_requests_line() -> None:
    gateway = Gateway(failure("Acme", 503))
    await gateway.chat()
    warning, line = gateway.lines
    assert warning["event"] == "provider_failed"
    assert warning["level"] == "warning"
    assert (warning["provider"], warning["status"], warning["model"]) == ("Acme", 503, MODEL)
    assert (line["status"], line["error"]) == (503, "provider_overloaded")
    assert line["generation"] == warning["generation"]


async def test_a_stream_that_breaks_is_a_warning_and_one_line() -> None:
    reply = stream_reply()
    reply.body[2:] = [CUT]
    gateway = Gateway(reply)
    assert (await gateway.chat(stream=True)).status == 200
    assert [line["event"] for line in gateway.lines] == ["provider_failed", "request"]
    assert gateway.requests()[0]["status"] == 502


async def test_what_a_provider_says_of_a_request_is_not_logged() -> None:
    gateway = Gateway(failure("Acme", 400, message=f"cannot read {PRIVATE}"))
    assert PRIVATE in (await gateway.chat()).body.decode()
    assert gateway.requests()[0]["status"] == 400
    assert PRIVATE not in gateway.out.getvalue()


@pytest.mark.parametrize(
    ("headers", "body", "status", "error"),
    [
        ({}, {}, 401, "authentication"),
        ({"authorization": f"Bearer {PRIVATE}"}, {}, 401, "authentication"),
        (KEY, {"model": PRIVATE, "messages": MESSAGES}, 404, "not_found"),
        (KEY, {"messages": PRIVATE}, 400, "invalid_request"),
    ],
)
async def test_a_refused_request_is_logged_without_what_it_said(
    headers: dict[str, str], body: dict[str, Any], status: int, error: str
) -> None:
    gateway = Gateway(whole_reply())
    await call(gateway.front, "POST", CHAT, headers, body=json.dumps(body).encode())
    [line] = gateway.lines
    assert (line["status"], line["route"], line["error"]) == (status, "/chat/completions", error)
    assert line.get("key_label") == (SUBJECT.label if headers is KEY else None)
    assert PRIVATE not in gateway.out.getvalue()


async def test_a_request_to_the_control_plane_is_logged_with_its_route_and_no_name() -> None:
    gateway = Gateway(whole_reply())
    await call(gateway.front, "GET", f"/v1/things/{PRIVATE}", KEY)
    [line] = gateway.lines
    assert (line["method"], line["route"], line["status"]) == ("GET", "/things/{name}", 200)
    assert line["key_label"] == SUBJECT.label
    assert PRIVATE not in gateway.out.getvalue()


async def test_a_path_that_leads_nowhere_is_not_logged_itself() -> None:
    gateway = Gateway(whole_reply())
    await call(gateway.front, "GET", f"/v1/{PRIVATE}", KEY)
    [line] = gateway.lines
    assert line["status"] == 404
    assert "route" not in line


async def test_a_request_of_the_operator_is_logged_as_one() -> None:
    gateway = Gateway(whole_reply(), local=True)
    await call(gateway.front, "GET", "/v1/things/x")
    assert gateway.requests()[0]["caller"] == "operator"


async def test_what_a_bug_raises_is_logged_beside_the_requests_line() -> None:
    gateway = Gateway(whole_reply())
    gateway.fixture.pipeline.begin = None  # type: ignore[assignment]
    with capture_logs() as logged:
        await gateway.chat()
    assert [each["event"] for each in logged] == ["request_failed"]
    assert gateway.requests()[0]["status"] == 500


@pytest.mark.parametrize("path", [CHAT, "/v1/things/full"])
async def test_a_full_disk_is_a_503_and_one_line_beside_the_requests_line(path: str) -> None:
    gateway = Gateway(whole_reply())

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", PRIVATE)

    gateway.fixture.pipeline.begin = fail  # type: ignore[assignment]
    body = json.dumps({"model": MODEL, "messages": MESSAGES}).encode()
    method = "POST" if path == CHAT else "GET"
    with capture_logs() as logged:
        answer = await call(gateway.front, method, path, KEY, body=body)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert PRIVATE not in answer.body.decode()
    assert [each["event"] for each in logged] == ["storage_unavailable"]
    assert gateway.requests()[0]["status"] == 503


async def test_an_error_after_the_head_has_left_adds_nothing_to_the_answer() -> None:
    gateway = Gateway(whole_reply())
    with capture_logs():
        answer = await call(gateway.front, "GET", "/late", KEY)
    assert (answer.status, answer.body) == (200, b"{}")


async def test_a_look_at_the_gateways_health_is_no_line() -> None:
    gateway = Gateway(whole_reply())
    await call(gateway.front, "GET", "/healthz")
    assert gateway.lines == []
