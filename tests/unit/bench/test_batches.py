"""What batches are submitted with, and how live requests beside them are counted."""

import asyncio
import json
from pathlib import Path

import pytest

from bench.batch_bodies import ITEM_BYTES, ITEMS_MODEL, REPLY_BYTES, item, replies, write_body
from bench.batches import latencies_within
from bench.load import Plan
from tollhouse.settings.service_sections import BatchSettings


def test_a_batch_of_50_000_items_is_just_below_the_limit() -> None:
    size = 50_000 * ITEM_BYTES + 1_000
    limit = BatchSettings().body_limit_bytes
    assert limit * 0.99 < size < limit


@pytest.mark.parametrize("requests_first", [True, False])
def test_a_body_is_a_batch_with_its_fields_in_either_order(
    tmp_path: Path,
    requests_first: bool,  # noqa: FBT001 - a parameter
) -> None:
    body = write_body(tmp_path / "body.json", 3, requests_first=requests_first).read_bytes()
    batch = json.loads(body)
    assert body.startswith(b'{"requests":') == requests_first
    assert (batch["endpoint"], batch["model"]) == ("/v1/chat/completions", ITEMS_MODEL)
    ids = [each["custom_id"] for each in batch["requests"]]
    assert ids == ["request-00000", "request-00001", "request-00002"]
    texts = {each["body"]["messages"][1]["content"] for each in batch["requests"]}
    assert len(texts) == 3


def test_items_and_replies_are_all_of_one_size() -> None:
    assert {len(item(number)) for number in (0, 7, 49_999)} == {ITEM_BYTES - 1}
    assert {len(reply) for reply in replies()} == {REPLY_BYTES}


async def test_a_stopped_load_ends_with_its_running_requests() -> None:
    plan = Plan(b"", lambda _: None)
    finished = plan.begin(10)
    plan.take()
    plan.stop()
    assert not finished.done()
    plan.end(None)
    await asyncio.wait_for(finished, 1)
    assert (plan.good, plan.take()) == (1, False)


def test_latencies_are_those_of_requests_that_were_due_in_a_stretch() -> None:
    each = [(1.0, 0.001), (2.0, 0.002), (3.0, 0.003), (4.0, 0.5)]
    assert latencies_within(each, [(0.5, 1.5), (2.5, 4.0)]) == [1.0, 3.0]
    assert latencies_within(each, []) == []
