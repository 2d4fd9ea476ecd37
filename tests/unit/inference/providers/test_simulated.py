import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference import fakes
from tests.unit.inference.providers.simulations import (
    added_up,
    asked,
    chunks,
    opened,
    said,
    streamed,
    whole,
)
from tollhouse.inference.catalog import Catalog
from tollhouse.inference.formats.chat_completions.wire import parse_request
from tollhouse.inference.guardrails import Guardrails
from tollhouse.inference.pipeline import Pipeline, PipelineDependencies
from tollhouse.inference.ports import ProviderCall
from tollhouse.inference.providers.simulated import provider as simulated
from tollhouse.inference.providers.simulated.models import BEHAVIOURS, SLUG, models
from tollhouse.inference.providers.simulated.provider import NAME, SimulatedProvider
from tollhouse.inference.types import Dialect, Endpoint
from tollhouse.kernel.errors import ProviderFailure, ProviderRefused, status_of
from tollhouse.observability.metrics import Metrics

ENDPOINT = Endpoint(SLUG, "echo", BEHAVIOURS["echo"].price)


async def test_echo_repeats_the_last_user_message() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "second  one\n"},
        {"role": "assistant", "content": "prefill"},
    ]
    assert await said({"model": "m", "messages": messages}) == "second  one\n"


async def test_the_same_request_has_the_same_reply() -> None:
    assert await whole(asked("a b c")) == await whole(asked("a b c"))
    assert await streamed(asked("a b c")) == await streamed(asked("a b c"))


async def test_different_requests_have_different_ids() -> None:
    assert (await whole(asked("a")))["id"] != (await whole(asked("b")))["id"]


@pytest.mark.parametrize("content", ["hello", "a b  c\n\td ", " ", "", "漢字 \N{GRINNING FACE}\0"])
async def test_a_stream_has_the_content_of_the_complete_response(content: str) -> None:
    assert await added_up(asked(content)) == await whole(asked(content))
    assert await said(asked(content)) == content


async def test_every_reply_says_that_it_is_simulated() -> None:
    assert (await whole(asked("a")))["system_fingerprint"] == "simulated"
    told = [chunk for chunk in await chunks(asked("a")) if chunk["choices"]]
    assert {chunk["system_fingerprint"] for chunk in told} == {"simulated"}
    assert NAME == "Simulated"


async def test_words_are_counted_as_tokens() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a b c"}]
    usage = (await whole({"model": "m", "messages": messages}))["usage"]
    assert usage == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


@pytest.mark.parametrize(
    ("limits", "content", "finish"),
    [
        ({}, "a b c", "stop"),
        ({"max_tokens": 2}, "a b ", "length"),
        ({"max_tokens": 3}, "a b c", "stop"),
        ({"max_completion_tokens": 1}, "a ", "length"),
        ({"max_completion_tokens": 2, "max_tokens": 1}, "a b ", "length"),
        ({"max_completion_tokens": None, "max_tokens": 1}, "a ", "length"),
        ({"max_tokens": None}, "a b c", "stop"),
        ({"max_tokens": 10**30}, "a b c", "stop"),
    ],
)
async def test_a_token_limit_is_respected(
    limits: dict[str, Any], content: str, finish: str
) -> None:
    reply = await whole(asked("a b c", **limits))
    assert reply["choices"][0]["message"]["content"] == content
    assert reply["choices"][0]["finish_reason"] == finish
    assert reply["usage"]["completion_tokens"] == len(content.split())


@pytest.mark.parametrize("limit", [0, -1, "2", 1.5, True, [], {}])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_an_invalid_token_limit_is_named(name: str, limit: object) -> None:
    with pytest.raises(ProviderRefused) as caught:
        await opened(asked("a", **{name: limit}))
    assert caught.value.message == f"{name}: must be an integer of at least 1."


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("", ""),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}], "a b"),
        (
            [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "a"}],
            "[image] a",
        ),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], "[image]"),
        (
            [
                {"type": "text", "text": "what?"},
                {"type": "file", "file": {"file_data": "data:"}},
                {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                {"type": "video_url", "video_url": {"url": "data:"}},
            ],
            "[file] [audio] [video] what?",
        ),
    ],
)
async def test_text_parts_are_joined_and_other_parts_acknowledged(
    content: object, answer: str
) -> None:
    assert await said(asked(content)) == answer


async def test_without_a_user_message_the_response_is_empty() -> None:
    assert await said({"model": "m", "messages": [{"role": "system", "content": "a"}]}) == ""


@pytest.mark.parametrize(
    "messages",
    [
        [{}],
        [{"content": "a"}],
        [{"role": 7, "content": "a"}],
        [{"role": "user", "content": 7}],
        [{"role": "user", "content": [7]}],
        ["a"],
        [None],
        [{"role": "user", "content": {"a": 1}}],
    ],
)
async def test_invalid_messages_are_rejected(messages: object) -> None:
    with pytest.raises(ProviderRefused) as caught:
        await opened({"model": "m", "messages": messages})
    assert status_of(caught.value) == 400
    assert caught.value.message.startswith("messages: ")


@pytest.mark.parametrize(("model", "status"), [("limited", 429), ("overloaded", 503)])
async def test_a_limited_or_overloaded_model_rejects_every_request(model: str, status: int) -> None:
    with pytest.raises(ProviderFailure) as caught:
        await opened(asked("a"), model)
    assert status_of(caught.value) == status
    assert caught.value.retry_after is None


async def test_the_broken_model_fails_every_response() -> None:
    with pytest.raises(ProviderFailure) as caught:
        await (await opened(asked("a b c"), "broken")).whole()
    assert caught.value.ambiguous
    with pytest.raises(ProviderFailure):
        await streamed(asked("a b c"), "broken")


async def test_a_slow_model_pauses_before_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(simulated.asyncio, "sleep", sleep)
    await streamed(asked("a b"), "slow")
    assert pauses == [0.2] * 5
    pauses.clear()
    await whole(asked("a b"), "slow")
    assert pauses == [0.4]


async def test_a_flaky_model_fails_every_other_request_beginning_with_the_first() -> None:
    provider = SimulatedProvider(NAME, "cancel")
    statuses: list[int] = []
    for _ in range(4):
        try:
            await opened(asked("a"), "flaky", provider)
            statuses.append(200)
        except ProviderFailure as error:
            statuses.append(status_of(error))
    assert statuses == [502, 200, 502, 200]


async def test_the_requests_of_other_models_do_not_count_for_the_flaky_one() -> None:
    provider = SimulatedProvider(NAME, "cancel")
    await opened(asked("a"), "echo", provider)
    with pytest.raises(ProviderFailure):
        await opened(asked("a"), "flaky", provider)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tools": 7}, "tools"),
        ({"tools": [{"function": {}}]}, "tools"),
        ({"tool_choice": 7}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"function": {"name": "SECRET"}}}, "tool_choice"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"response_format": "SECRET"}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": 7}}, "response_format"),
        ({"reasoning": "SECRET"}, "reasoning"),
        ({"reasoning_effort": 7}, "reasoning_effort"),
        ({"stop": [7]}, "stop"),
        ({"stop": list("abcde")}, "stop"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ],
)
async def test_an_invalid_field_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(ProviderRefused) as caught:
        await opened(asked("a", **fields))
    assert caught.value.message.startswith(f"{path}: ")
    assert "SECRET" not in caught.value.message


def test_every_behaviour_is_a_model_of_the_catalogue() -> None:
    assert [each.id for each in models()] == [f"simulated/{name}" for name in BEHAVIOURS]
    assert {each.endpoints[0].provider for each in models("pretend")} == {"pretend"}


@pytest.mark.parametrize("model", [name for name in BEHAVIOURS if name != "embedding"])
@pytest.mark.parametrize("stream", [False, True])
async def test_every_model_completes_through_the_pipeline(
    model: str,
    stream: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def sleep(seconds: float) -> None:
        del seconds

    monkeypatch.setattr(simulated.asyncio, "sleep", sleep)
    books = fakes.FakeSettler()
    provider = SimulatedProvider(NAME, "cancel")
    metrics = Metrics()
    guardrails = Guardrails({}, metrics)
    services = PipelineDependencies(
        {SLUG: provider}, fakes.FakeAdmission(), books, FakeClock(), metrics, guardrails
    )
    pipeline = Pipeline(Catalog(models()), services, SequentialIds())
    body = json.dumps(asked("hello there", model=f"simulated/{model}", stream=stream)).encode()
    exchange = pipeline.begin(fakes.parsed_request(parse_request(body)))
    reply = await fakes.outcome(exchange)
    if not isinstance(reply, bytes):
        assert model in {"broken", "limited", "overloaded", "flaky"}
        assert reply.metadata["provider_name"] == NAME
        return
    if not stream:
        usage = json.loads(reply)["usage"]
    else:
        seen = check_stream(reply)
        assert seen.failed == (model == "broken")
        usage = seen.last.get("usage")
    if usage:
        price = 0 if model == "echo:free" else 0.000001
        cost = price * (usage["prompt_tokens"] + 2 * usage["completion_tokens"])
        assert usage["cost"] == pytest.approx(cost, rel=1e-9)
        assert books.booked[0].cost_nano == round(usage["cost"] * 1e9)


def test_a_configured_model_uses_a_dialect_of_the_provider() -> None:
    # Without this, an endpoint whose settings name no dialect would be asked in the client's.
    assert set(SimulatedProvider.dialects) == {Dialect.CHAT, Dialect.EMBEDDINGS}


async def test_many_streams_do_not_block_the_event_loop() -> None:
    provider, said, most = SimulatedProvider(NAME, "cancel"), 0, 0

    async def read() -> None:
        nonlocal said
        body = json.dumps(asked("word " * 100)).encode()
        reply = await provider.open(ProviderCall(ENDPOINT, Dialect.CHAT, stream=True, body=body))

        def take(events: Sequence[bytes]) -> bool:
            nonlocal said
            said += len(events)
            return True

        await reply.relay(take)

    streams = [asyncio.create_task(read()) for _ in range(20)]
    while not all(each.done() for each in streams):
        before = said
        await asyncio.sleep(0)
        most = max(most, said - before)
    assert said > 20 * 100
    assert most <= 9  # a slice, and a stream's last words


async def test_a_stream_does_not_wait_for_many_of_another_account() -> None:
    provider, ended = SimulatedProvider(NAME, "cancel"), list[str]()

    async def read(owner: str) -> None:
        body = json.dumps(asked("word " * 100)).encode()
        call = ProviderCall(ENDPOINT, Dialect.CHAT, stream=True, body=body, owner=owner)
        await (await provider.open(call)).relay(lambda _: True)
        ended.append(owner)

    await asyncio.gather(*[read("many") for _ in range(20)], read("one"))
    assert ended[0] == "one"
