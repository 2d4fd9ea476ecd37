"""What the simulated models answer: the cases in `simulated/`, whole and streamed.

model, ask   the model and the request: a short one, with the case's fields in place of its own
says         what is answered; `refuse` stands alone, for the message of a refusal
"""

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chat_chunks import choices_of
from tests.support.seams.formats import DIALECTS
from tests.support.seams.simulated import (
    DIMENSIONS,
    InvalidSimulatedRequest,
    ProviderFailure,
    ProviderRefused,
    SimulatedProvider,
    new_provider,
    opened,
    sample,
    sample_object,
    status_of,
    vectors,
)

FOLDER = Path(__file__).parent / "simulated"
CASES: dict[str, dict[str, Any]] = {
    f"{path.stem}: {name} ({number})": case
    for path in sorted(FOLDER.glob("*.yaml"))
    for name, rows in yaml.load(path.read_bytes(), yaml.CSafeLoader).items()
    for number, case in enumerate(rows if isinstance(rows, list) else [rows])
}
REFUSED = {name: case for name, case in CASES.items() if "refuse" in case}
ANSWERED = {name: case for name, case in CASES.items() if "says" in case}
SAMPLED = {name: case for name, case in CASES.items() if "schema" in case}


def asked(content: object = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


def request_of(case: dict[str, Any]) -> dict[str, Any]:
    fields = case.get("ask", {})
    return asked(**fields) if isinstance(fields, dict) else asked(fields)


async def whole(body: dict[str, Any], model: str = "echo") -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(await (await opened(body, model)).whole())
    return reply


async def chunks(body: dict[str, Any], model: str = "echo") -> list[dict[str, Any]]:
    said: list[bytes] = []
    assert await (await opened(body, model)).relay(lambda events: not said.extend(events))
    *events, done = said
    assert done == b"[DONE]"
    return [json.loads(data) for data in events]


async def deltas(body: dict[str, Any], model: str = "echo") -> list[dict[str, Any]]:
    parts = await chunks(body, model)
    return [choice["delta"] for chunk in parts for choice in chunk["choices"]]


async def joined(body: dict[str, Any], model: str = "echo") -> dict[str, Any]:
    """Return the whole reply that a stream is."""
    parts = await chunks(body, model)
    named = ("id", "model", "system_fingerprint")
    said = {"object": "chat.completion", **{name: parts[0][name] for name in named}}
    return {**said, "choices": choices_of(parts), "usage": parts[-1]["usage"]}


def told(reply: dict[str, Any]) -> dict[str, Any]:
    """Return what a reply says, short; of several answers the first, and how many they are."""
    choice = reply["choices"][0]
    message, usage = choice["message"], reply["usage"]
    details = usage.get("completion_tokens_details", {})
    counted = [usage["prompt_tokens"], usage["completion_tokens"], *details.values()]
    calls = [each["function"] for each in message.get("tool_calls", ())]
    found = {
        "text": message["content"],
        "refusal": message["refusal"],
        "thought": message.get("reasoning"),
        "calls": [[each["name"], each["arguments"]] for each in calls] or None,
        "logprobs": choice["logprobs"] and choice["logprobs"]["content"],
        "answers": len(reply["choices"]) if len(reply["choices"]) > 1 else None,
    }
    shown = {name: value for name, value in found.items() if value is not None}
    return {**shown, "end": choice["finish_reason"], "tokens": counted}


@pytest.mark.parametrize("name", ANSWERED)
async def test_a_model_answers(name: str) -> None:
    case = ANSWERED[name]
    body, model = request_of(case), case.get("model", "echo")
    reply = await whole(body, model)
    assert told(reply) == case["says"]
    assert await joined(body, model) == reply
    assert reply["system_fingerprint"] == "simulated"


@pytest.mark.parametrize("name", REFUSED)
async def test_a_model_refuses(name: str) -> None:
    case = REFUSED[name]
    with pytest.raises(ProviderRefused) as caught:
        await opened(request_of(case), case.get("model", "echo"))
    assert status_of(caught.value) == 400
    assert caught.value.message == case["refuse"]


@pytest.mark.parametrize("name", SAMPLED)
def test_a_value_is_of_its_schema(name: str) -> None:
    assert sample(SAMPLED[name]["schema"]) == SAMPLED[name]["value"]


# Ids and streams


async def test_the_same_request_has_the_same_reply_and_another_has_other_ids() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("weather", "time")]
    bodies = [asked(text, tools=tools, n=2) for text in ("a", "b")]
    found = [await whole(body, "tools") for body in bodies]
    calls = [
        call["id"]
        for reply in found
        for choice in reply["choices"]
        for call in choice["message"]["tool_calls"]
    ]
    assert len(set(calls)) == 8
    assert found[0]["id"] != found[1]["id"]
    assert [await whole(body, "tools") for body in bodies] == found


async def test_a_refusal_is_streamed_in_pieces() -> None:
    said = await deltas(asked(), "refusal")
    assert len([delta for delta in said if delta.get("refusal")]) > 2
    assert not any(delta.get("content") for delta in said)


async def test_arguments_are_streamed_in_two_pieces_at_least() -> None:
    for schema in ({}, {"type": "object", "required": []}, {"properties": {"a": {}}}):
        function = {"name": "one", "parameters": schema}
        body = asked(tools=[{"type": "function", "function": function}])
        calls = [
            call["function"]
            for delta in await deltas(body, "tools")
            for call in delta.get("tool_calls", ())
        ]
        assert calls[0]["arguments"] == ""
        assert len([each for each in calls if each["arguments"]]) >= 2


async def test_a_short_request_cannot_ask_for_an_unbounded_reply() -> None:
    long = "word " * 20_000
    assert (await whole(asked(long)))["choices"][0]["message"]["content"] == long
    for fields in ({"n": 128}, {"logprobs": True, "top_logprobs": 20}):
        with pytest.raises(ProviderRefused, match="too long"):
            await opened(asked(long, **fields))


async def test_a_long_result_is_cut_in_the_agents_report() -> None:
    messages = [
        {"role": "user", "content": "run: yes"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "shell"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "y" * 5_000},
    ]
    report = (await whole(asked() | {"messages": messages}, "agent"))["choices"][0]["message"]
    assert "y" * 2_000 + " [...]" in report["content"]
    assert "y" * 2_001 not in report["content"]


def tool(name: str, schema: object = None) -> dict[str, Any]:
    given_schema = {} if schema is None else {"parameters": schema}
    return {"type": "function", "function": {"name": name, **given_schema}}


JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
BODIES = st.builds(
    asked,
    st.text(alphabet=st.sampled_from("ab \n漢"), max_size=12),
    max_tokens=st.none() | st.integers(1, 20),
    n=st.integers(1, 2),
    stop=st.sampled_from([None, "b", ["a", "漢"]]),
    tools=st.sampled_from([None, [tool("a", {"required": ["x"]})], [tool("a"), tool("b", {})]]),
    tool_choice=st.sampled_from(["auto", "none"]),
    logprobs=st.booleans(),
    response_format=st.sampled_from([None, {"type": "json_object"}, JSON_SCHEMA]),
    reasoning=st.sampled_from([None, {"effort": "none"}, {"exclude": True}]),
)


@given(body=BODIES, model=st.sampled_from(["echo", "tools", "reasoning", "refusal"]))
@settings(max_examples=80, deadline=None)
async def test_a_stream_joins_to_the_whole_reply(body: dict[str, Any], model: str) -> None:
    assert await joined(body, model) == await whole(body, model)


async def test_only_its_own_requests_count_for_the_flaky_model() -> None:
    provider = new_provider()
    await opened(asked(), "echo", provider)
    for _ in range(2):
        with pytest.raises(ProviderFailure):
            await opened(asked(), "flaky", provider)
        await opened(asked(), "flaky", provider)


# Thoughts that come back


def followed(details: object) -> dict[str, Any]:
    """Return a conversation in which reasoning is sent back."""
    thought = {"role": "assistant", "content": "hi", "reasoning_details": details}
    turns = [{"role": "user", "content": "hi"}, thought, {"role": "user", "content": "and now?"}]
    return {"model": "m", "messages": turns}


async def details_of(text: str, **fields: Any) -> list[dict[str, Any]]:
    reply = await whole(asked(text, **fields), "reasoning")
    details: list[dict[str, Any]] = reply["choices"][0]["message"]["reasoning_details"]
    return details


async def answer_to(details: object, model: str = "reasoning") -> str:
    reply = await whole(followed(details), model)
    return reply["choices"][0]["message"]["content"]


async def pieces_of(text: str) -> list[dict[str, Any]]:
    said = await deltas(asked(text), "reasoning")
    return [each for delta in said for each in delta.get("reasoning_details", ())]


async def test_unchanged_thoughts_are_accepted() -> None:
    cut = await details_of("hello", max_tokens=3)
    several = [*await details_of("hi"), *await details_of("one two")]
    for details in (await details_of("hi"), cut, several, await pieces_of("hi")):
        assert await answer_to(details) == "and now?"


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "I thought of something else."},
        {"text": None},
        {"signature": "something else"},
        {"signature": ""},
        {"signature": None},
    ],
)
async def test_changed_thoughts_are_refused(changed: dict[str, Any]) -> None:
    [detail] = await details_of("hi")
    with pytest.raises(ProviderRefused, match=r"^messages\[1\]\.reasoning_details: "):
        await opened(followed([detail | changed]), "reasoning")
    assert await answer_to([detail | changed], "echo") == "and now?"
    with pytest.raises(ProviderRefused):
        await opened(followed((await pieces_of("hi"))[1:]), "reasoning")


@pytest.mark.parametrize("other", ["anthropic-claude-v1", None])
async def test_thoughts_of_another_provider_are_ignored(other: str | None) -> None:
    foreign = {"type": "reasoning.text", "text": "x", "signature": "y", "format": other}
    assert await answer_to([foreign]) == "and now?"


async def test_thoughts_are_streamed_before_the_answer_and_signed_at_their_end() -> None:
    said = await deltas(asked(), "reasoning")
    thoughts = [at for at, delta in enumerate(said) if "reasoning" in delta]
    text = [at for at, delta in enumerate(said) if delta.get("content")]
    details = [
        (at, each) for at, delta in enumerate(said) for each in delta.get("reasoning_details", ())
    ]
    assert len(thoughts) > 2
    assert [at for at, each in details if each["signature"]] == [thoughts[-1] + 1]
    assert thoughts[-1] + 1 < min(text)
    assert [each["format"] for _, each in details if each["format"]] == ["simulated-v1"]


# Samples


def of(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def test_a_short_schema_of_a_huge_value_is_cut() -> None:
    levels = {
        f"l{n}": of({name: {"$ref": f"#/$defs/l{n + 1}"} for name in "abcd"}) for n in range(20)
    }
    names = of({f"n{number}": {} for number in range(2_000)})
    many = of({f"p{number}": {"$ref": "#/$defs/given"} for number in range(300)})
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(300):
        deep = of({"a": deep})
    huge = [
        {"$defs": levels, "$ref": "#/$defs/l0"},
        *({"$defs": {"given": given_}, **many} for given_ in (names, {"const": "x" * 1_000})),
        {"$defs": {"given": {"enum": [["x" * 1_000]]}}, **many},
    ]
    assert all(len(json.dumps(sample(schema))) < 100_000 for schema in huge)
    assert len(json.dumps(sample(deep))) < 1_000
    assert sample(huge[2])["p0"] == "x" * 1_000


@pytest.mark.parametrize("schema", [b"[", b"null", b'{"type": "string"}', b"[1]", b"7"])
def test_arguments_are_an_object_whatever_the_schema_is(schema: bytes) -> None:
    assert sample_object(schema) == {}


KEYWORDS = ("type", "properties", "required", "items", "enum", "anyOf", "$ref", "const", "$defs")
JSON = st.recursive(
    st.sampled_from([None, True, 1, "object", "array", "#", "#/properties/type", "type"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_any_schema_has_one_sample(schema: object) -> None:
    assert sample(schema) == sample(schema)


# Embeddings


def made(texts: object, **fields: Any) -> list[list[float]]:
    return [item["embedding"] for item in vectors({"input": texts, **fields})["data"]]


def test_a_vector_depends_only_on_its_text() -> None:
    assert made("a") != made("b")
    assert made(["a", "b", "a"]) == [*made("a"), *made("b"), *made("a")]


def test_a_vector_has_length_one_and_the_requested_dimensions() -> None:
    for size in (1, 3, DIMENSIONS, 1_536):
        [vector] = made("hello", dimensions=size)
        assert len(vector) == size
        assert math.hypot(*vector) == pytest.approx(1.0)
    assert len(made("hello")[0]) == DIMENSIONS


@pytest.mark.parametrize(
    ("texts", "count", "tokens"),
    [
        ("one two", 1, 2),
        (["one two", "three"], 2, 3),
        ([1, 2, 3], 1, 3),
        ([[1, 2], [3]], 2, 3),
        ([{"content": ["x"]}], 1, 1),
    ],
)
def test_every_type_of_input_has_its_vectors(texts: object, count: int, tokens: int) -> None:
    reply = vectors({"input": texts})
    assert [item["index"] for item in reply["data"]] == list(range(count))
    assert reply["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("dimensions", each) for each in (0, -1, 4_097)),
        *(("input", each) for each in (True, [None])),
    ],
)
def test_an_invalid_request_for_vectors_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidSimulatedRequest, match=name):
        vectors({"input": "a", name: value})


# Beside other requests


def test_a_configured_model_uses_a_dialect_of_the_provider() -> None:
    # Without this, an endpoint whose settings name no dialect would be asked in the client's.
    assert set(SimulatedProvider.dialects) == {DIALECTS["chat"], DIALECTS["embeddings"]}


async def test_many_streams_do_not_block_the_event_loop() -> None:
    provider, said, most = new_provider(), 0, 0

    def take(events: Sequence[bytes]) -> bool:
        nonlocal said
        said += len(events)
        return True

    async def read() -> None:
        await (await opened(asked("word " * 100), provider=provider)).relay(take)

    streams = [asyncio.create_task(read()) for _ in range(20)]
    while not all(each.done() for each in streams):
        before = said
        await asyncio.sleep(0)
        most = max(most, said - before)
    assert said > 20 * 100
    assert most <= 9  # a slice, and a stream's last words


async def test_a_stream_does_not_wait_for_many_of_another_account() -> None:
    provider, ended = new_provider(), list[str]()

    async def read(owner: str) -> None:
        body = asked("word " * 100)
        await (await opened(body, provider=provider, owner=owner)).relay(lambda _: True)
        ended.append(owner)

    await asyncio.gather(*[read("many") for _ in range(20)], read("one"))
    assert ended[0] == "one"
