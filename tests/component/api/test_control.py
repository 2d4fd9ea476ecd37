"""What the framework would say by itself: unknown paths, wrong methods, bodies, failures."""

import logging
from collections.abc import AsyncIterator
from typing import Annotated

import httpx2
import pytest
from fastapi import APIRouter
from pydantic import Field

from tests.component.api.conftest import Client, message
from tests.support.seams.api import control_app
from tollhouse.kernel.errors import Conflict
from tollhouse.kernel.wire import STORABLE, RequestModel

SECRET = "sk-th-v1-not-for-anybody"


MANY = b", ".join(b'"%d": 1' % number for number in range(8))
UNKNOWN = "; ".join(f"{number}: is not a known field" for number in range(4)) + "."


class Thing(RequestModel):
    name: Annotated[str, STORABLE]
    parts: list[int] = Field(default=[])


async def read_thing(thing: str) -> str:
    return thing


async def make_thing(body: Thing) -> str:
    return body.name


async def refuse() -> None:
    raise Conflict("Busy.", metadata={"reason": "busy"}, retry_after=7)


async def fail() -> None:
    raise RuntimeError(SECRET)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    routes = APIRouter()
    routes.get("/things/{thing}")(read_thing)
    routes.post("/things")(make_thing)
    routes.delete("/things/{thing}")(read_thing)
    routes.get("/refuse")(refuse)
    routes.get("/fail")(fail)
    transport = httpx2.ASGITransport(app=control_app(routes), raise_app_exceptions=False)
    async with Client(transport=transport, base_url="http://gateway") as made:
        yield made


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/messages/batches", {}), ("/files", {"anthropic-version": "2023-06-01"})],
)
async def test_a_client_of_anthropics_gets_its_own_envelope(
    client: Client, path: str, headers: dict[str, str]
) -> None:
    told = await client.get(path, headers=headers)
    assert told.status_code == 404
    assert told.json()["error"]["type"] == "not_found_error"
    assert "is not offered here" in told.json()["error"]["message"]


async def test_a_path_with_a_slash_at_its_end_is_not_redirected(client: Client) -> None:
    message(await client.post("/things/", json={"name": "x"}), 404)


async def test_a_wrong_method_names_all_that_the_path_has(client: Client) -> None:
    reply = await client.put("/things/a")

    assert message(reply, 405) == "PUT is not allowed here; use DELETE or GET."
    assert reply.headers["allow"] == "DELETE, GET"


async def test_a_refusal_carries_its_facts_and_its_hint(client: Client) -> None:
    reply = await client.get("/refuse")

    assert reply.status_code == 409
    assert reply.headers["retry-after"] == "7"
    assert reply.json() == {
        "error": {"code": 409, "message": "Busy.", "metadata": {"reason": "busy"}}
    }


async def test_a_failure_says_nothing_of_its_cause(client: Client) -> None:
    reply = await client.get("/fail")

    assert reply.status_code == 500
    assert reply.json() == {
        "error": {
            "code": 500,
            "message": "Internal server error.",
            "metadata": {"error_type": "server"},
        }
    }


async def test_a_failure_goes_on_to_the_front_which_logs_it(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    transport = client._transport  # noqa: SLF001 - the same application, with its exceptions
    transport.raise_app_exceptions = True

    with pytest.raises(RuntimeError, match=SECRET), caplog.at_level(logging.DEBUG):
        await client.get("/fail")

    assert caplog.records == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "The body is not JSON: Expecting property name enclosed in double quotes "),
        (b'{"name": nope}', "The body is not JSON: Expecting value at position 9."),
        (b"", "The request needs a body: a JSON object."),
        (b"[]", "The body must be a JSON object."),
        (b'"text"', "The body must be a JSON object."),
        (b"null", "The body must be a JSON object."),
        (b'{"name": "x", "\\ud800": 1}', "The body must be a JSON object."),
        (b"\xff", "The body is not readable JSON."),
        (b"[" * 100_000, "The body is not readable JSON."),
        (b'{"name": "\\ud800"}', "name: must be valid Unicode."),
        (b'{"name": "x", "parts": [1, "2"]}', "parts.1: Input should be a valid integer."),
        (b'{"name": "x", "parts": 1, "more": 2}', "parts: Input should be a valid list; more: "),
        (b"{%b}" % MANY, f"name: is required; {UNKNOWN[:-1]}; and 4 more."),
        (b'{"name": "x", "%b": 1}' % (b"y" * 101), f"{'y' * 100}...: is not a known field."),
    ],
)
async def test_a_body_that_does_not_fit(client: Client, body: bytes, text: str) -> None:
    reply = await client.post("/things", content=body, headers={"Content-Type": "application/json"})

    assert message(reply, 400).startswith(text)


async def test_a_body_of_another_type(client: Client) -> None:
    reply = await client.post("/things", data={"name": "x"})

    assert message(reply, 400) == "Send the body as JSON, with Content-Type: application/json."


async def test_what_was_sent_is_never_shown(client: Client) -> None:
    for body in ({"name": [SECRET]}, {"name": "x", "parts": [SECRET]}, SECRET, [SECRET]):
        assert SECRET not in (await client.post("/things", json=body)).text
