"""A batch that comes in pieces."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.batches.reading import (
    BatchReplyReader,
    JsonValue,
    MalformedReply,
    read_without_results,
)
from tollhouse.cli.batches.status import result_line

FIELDS: dict[str, Any] = {
    "id": "batch_1",
    "object": "batch",
    "endpoint": "/v1/messages",
    "model": "m",
    "completion_window": "24h",
    "status": "completed",
    "created_at": 1,
    "expires_at": 2,
    "finalized_at": 3,
    "error": None,
    "provider": "acme",
    "usage": None,
    "request_counts": {"total": 2, "completed": 1, "failed": 1},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


async def in_pieces(text: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


async def read(text: bytes, size: int = 7) -> tuple[dict[str, Any], list[JsonValue] | None]:
    reader = BatchReplyReader(in_pieces(text, size))
    found = [each async for each in reader.results()]
    return reader.batch, found if reader.has_results else None


@given(results=st.lists(JSON), size=st.integers(1, 50), data=st.data(), indent=st.booleans())
async def test_results_come_one_by_one_wherever_they_stand(
    results: list[Any], size: int, *, data: st.DataObject, indent: bool
) -> None:
    names = data.draw(st.permutations([*FIELDS, "results"]))
    whole = {**FIELDS, "results": results}
    text = json.dumps({name: whole[name] for name in names}, indent=2 if indent else None)
    batch, found = await read(text.encode(), size)
    assert batch == FIELDS
    assert found is not None
    assert [each.value for each in found] == results
    assert [json.loads(each.text) for each in found] == results
    assert not any("\n" in each.text for each in found)


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
async def test_a_result_stays_as_it_was_written(size: int) -> None:
    written = ['{"a": 1.50, "b": "\\u00e4ä\\ud800"}', "12", '"x"', "-1e5"]
    text = '{"results": [' + ",".join(written) + '], "status": "completed"}'
    batch, found = await read(text.encode(), size)
    assert batch == {"status": "completed"}
    assert found is not None
    assert [each.text for each in found] == written


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"<html>", b"[]", b'{"a" 1}', b'{"a": 1', b'{"results": [1'),
        *(b'{"results": [1 2]}', b'{"a": nul}', b'{"a": "\xff"}', b'{"a": ' + b"[" * 100_000),
    ],
)
async def test_what_is_no_batch_is_broken(text: bytes) -> None:
    with pytest.raises(MalformedReply):
        await read(text)


async def test_nothing_is_read_behind_the_fields() -> None:
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        yield json.dumps(FIELDS).removesuffix("}").encode() + b', "results": ['
        while True:
            asked += 1
            yield b'{"custom_id": "a"},'

    assert await read_without_results(endless()) == FIELDS
    assert asked < 5


FAILED = {
    "id": "r1",
    "custom_id": "ä",
    "response": None,
    "error": {"type": "api_error", "message": "No.", "param": None, "error_type": "server"},
}


def value(of: Any) -> JsonValue:
    return JsonValue(json.dumps(of, ensure_ascii=False), of)


def test_a_line_as_openai_writes_it_differs_only_where_a_request_failed() -> None:
    answered = {"id": "r", "custom_id": "a", "response": {"status_code": 200}, "error": None}
    for each in (answered, FAILED, None, 7):
        assert result_line(value(each), "tollhouse") == value(each).text
    assert result_line(value(answered), "openai") == value(answered).text
    line = result_line(value(FAILED), "openai")
    assert json.loads(line) == {**FAILED, "error": {"code": "server", "message": "No."}}
    assert "ä" in line
    closed = {**FAILED, "error": {"type": "batch_expired", "message": "Late.", "param": None}}
    assert json.loads(result_line(value(closed), "openai"))["error"]["code"] == "batch_expired"
