"""A provider that cuts its reply, through the running gateway."""

import asyncio
import random
from collections.abc import Generator

import httpx2
import pytest

from tests.faults.raw_client import Answer, chat, post_chat
from tests.faults.stream_assertions import assert_bad_gateway, assert_error_ending, assert_legal
from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_process import UpstreamProcess

WAYS = ("eof", "short", "rst")
CUTS_IN_TEST = 60
CUTS_IN_SOAK = 300
SHORTEST_STREAM, SHORTEST_WHOLE = 900, 250
"""Fewer bytes than the fake provider's replies have, so that every draw cuts something off."""
AT_ONCE = 20


def draws(number: int, shortest: int) -> dict[str, str]:
    """Return models by id, each cutting at a random place in a random way."""
    chosen = random.Random(shortest)
    return {
        f"cut/{shortest}-{index}": f"cut:{chosen.randrange(shortest)}:{chosen.choice(WAYS)}"
        for index in range(number)
    }


STREAMED, WHOLE = draws(CUTS_IN_SOAK, SHORTEST_STREAM), draws(CUTS_IN_SOAK, SHORTEST_WHOLE)


@pytest.fixture(scope="module")
def server(
    upstream: UpstreamProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServerProcess]:
    config = upstream.config({**STREAMED, **WHOLE, "cutter/echo": "echo"})
    with start_server(tmp_path_factory.mktemp("cuts"), config=config) as running:
        yield running


async def ask_all(server: ServerProcess, models: list[str], *, stream: bool) -> list[Answer]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(model: str) -> Answer:
        async with gate:
            return await post_chat(server.base_url, server.api_key, chat(model, stream=stream))

    return await asyncio.gather(*map(ask, models))


async def expect_errors(server: ServerProcess, models: dict[str, str], *, stream: bool) -> None:
    answers = await ask_all(server, list(models), stream=stream)
    for behaviour, answer in zip(models.values(), answers, strict=True):
        try:
            if answer.status == 200:
                assert stream, "a whole reply was not whole"
                assert_error_ending(answer)
            else:
                assert_bad_gateway(answer)
        except AssertionError as error:
            error.add_note(f"{behaviour}: {answer}")
            raise


def first(models: dict[str, str], number: int) -> dict[str, str]:
    return dict(list(models.items())[:number])


async def test_replies_that_are_not_cut_are_longer_than_every_cut(server: ServerProcess) -> None:
    (stream,) = await ask_all(server, ["cutter/echo"], stream=True)
    (whole,) = await ask_all(server, ["cutter/echo"], stream=False)
    assert "usage" in assert_legal(stream)
    assert whole.json["choices"][0]["message"]["content"] == "one two three four five"


async def test_a_stream_that_the_provider_cuts_ends_with_an_error_chunk_and_done(
    server: ServerProcess,
) -> None:
    await expect_errors(server, first(STREAMED, CUTS_IN_TEST), stream=True)


async def test_a_whole_reply_that_the_provider_cuts_is_a_502(server: ServerProcess) -> None:
    await expect_errors(server, first(WHOLE, CUTS_IN_TEST), stream=False)


async def test_a_cut_stream_costs_nothing_and_is_booked(server: ServerProcess) -> None:
    model = next(model for model, way in STREAMED.items() if int(way.split(":")[1]) > 600)
    (answer,) = await ask_all(server, [model], stream=True)
    reply = httpx2.get(
        f"{server.base_url}/generation",
        params={"id": answer.generation_id},
        headers=server.authorization,
    )
    generation = reply.json()["data"]
    assert generation["finish_reason"] == "error"
    assert generation["total_cost"] == 0


async def test_the_gateway_is_healthy_after_the_cuts(server: ServerProcess) -> None:
    await ask_all(server, list(first(STREAMED, 10)), stream=True)
    for answer in await ask_all(server, ["cutter/echo"] * AT_ONCE, stream=True):
        assert "usage" in assert_legal(answer)


@pytest.mark.soak
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_300_random_cuts_end_streams_with_an_error(
    server: ServerProcess, soak_factor: int, *, stream: bool
) -> None:
    for _ in range(soak_factor):
        await expect_errors(server, STREAMED if stream else WHOLE, stream=stream)
