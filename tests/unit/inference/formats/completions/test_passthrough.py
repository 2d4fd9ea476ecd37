"""Passing completions streams through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.stream_checks.completions import CheckedStream, check_stream
from tollhouse.accounting.types import Charge, Cost, CostState, Usage
from tollhouse.inference.formats.completions import CompletionsPassthroughAdapter, parse_request
from tollhouse.inference.types import ReplyIdentity

IDENTITY = ReplyIdentity("gen-1", "acme/large", "Acme", 1_700_000_000)
CHARGE = Charge(CostState.EXACT, Usage(input_tokens=1, output_tokens=1), 0, 0, Cost(0, 0, 0))
SAID, ENDED = {"index": 0, "text": "a"}, {"index": 0, "text": "", "finish_reason": "stop"}


def stream(**fields: Any) -> Any:
    body = {"model": "acme/large", "prompt": "hello", "stream": True} | fields
    return CompletionsPassthroughAdapter(parse_request(json.dumps(body).encode())).open_stream(
        IDENTITY
    )


def seen(*choices: dict[str, Any], **fields: Any) -> CheckedStream:
    new = stream(**fields)
    out = [new.feed(json.dumps({"choices": [each]}).encode()) for each in choices]
    return check_stream(b"".join([*out, new.end(CHARGE)]))


@pytest.mark.parametrize(
    ("chunks", "complete"),
    [
        ([], False),
        ([{}], False),
        ([{"choices": [{"index": 0, "text": ""}]}], False),
        ([{"choices": [SAID]}], True),
        ([{"choices": [ENDED]}], True),
    ],
)
def test_a_stream_without_finish_reason_is_complete_after_done_if_it_has_output(
    chunks: list[dict[str, Any]],
    complete: bool,  # noqa: FBT001
) -> None:
    new = stream()
    for each in chunks:
        new.feed(json.dumps(each).encode())
    new.feed(b"[DONE]")
    assert new.complete is complete


@pytest.mark.parametrize("asked", [False, True])
def test_the_usage_chunk_has_no_choices_only_if_usage_was_requested(asked: bool) -> None:  # noqa: FBT001
    last = seen(SAID, ENDED, stream_options={"include_usage": asked}).last
    silent = {"index": 0, "text": "", "finish_reason": None, "logprobs": None}
    assert last["choices"] == ([] if asked else [silent])
    assert last["usage"]["total_tokens"] == 2
