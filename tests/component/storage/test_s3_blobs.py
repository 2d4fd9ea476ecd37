"""S3 alone: answers that are lost, stores that are away, refuse, or know no conditional writes."""

import asyncio

import pytest

from tests.component.storage.conftest import place_at
from tests.support.fake_s3 import (
    FakeS3,
    Fault,
    deny,
    disconnect,
    lose_response,
    slow_down,
    truncate_body,
    work_then_slow_down,
)
from tollhouse.kernel.ids import RandomIds
from tollhouse.storage.blobs import PIECE, BlobExists, BlobMissing, BlobsUnavailable
from tollhouse.storage.s3_blobs import S3Blobs

KEY = "batches/7f3a/input/00003.jsonl.zst"


@pytest.mark.parametrize("fault", [disconnect, slow_down, lose_response, work_then_slow_down])
async def test_a_put_that_is_sent_again_knows_its_own_blob(
    s3: FakeS3, s3_blobs: S3Blobs, fault: Fault
) -> None:
    s3.faults.append(fault)
    await s3_blobs.put(KEY, b"1")
    assert await s3_blobs.get(KEY) == b"1"
    with pytest.raises(BlobExists):
        await s3_blobs.put(KEY, b"1")


async def test_a_blob_that_went_away_after_a_lost_race_was_another_ones(
    s3: FakeS3, s3_blobs: S3Blobs
) -> None:
    await s3_blobs.put(KEY, b"1")

    async def delete_after(request: object, answer: object) -> object:
        refusal = await answer(request)  # type: ignore[operator]
        s3.objects.clear()
        return refusal

    s3.faults.append(delete_after)  # type: ignore[arg-type]
    with pytest.raises(BlobExists):
        await s3_blobs.put(KEY, b"2")


@pytest.mark.parametrize("fault", [disconnect, slow_down, truncate_body])
async def test_what_is_read_survives_a_fault(s3: FakeS3, s3_blobs: S3Blobs, fault: Fault) -> None:
    data = bytes(range(256)) * (PIECE // 64)
    await s3_blobs.put(KEY, data)
    s3.faults.append(fault)
    assert await s3_blobs.get(KEY) == data


async def test_a_large_blob_goes_up_in_one_request(s3: FakeS3, s3_blobs: S3Blobs) -> None:
    await s3_blobs.put(KEY, bytes(20 * PIECE))
    assert [request.method for request in s3.seen] == ["PUT"]


async def test_a_list_is_read_to_its_last_page(s3: FakeS3, s3_blobs: S3Blobs) -> None:
    s3.page = 2
    keys = [f"a/{number}" for number in range(7)]
    await asyncio.gather(*(s3_blobs.put(key, b"1") for key in keys))
    assert await s3_blobs.list("a") == keys
    await s3_blobs.delete_all("a")
    assert await s3_blobs.list("a") == []


async def test_other_prefixes_are_out_of_reach(s3: FakeS3, s3_blobs: S3Blobs) -> None:
    neighbour = S3Blobs(place_at(s3.endpoint), RandomIds())
    await neighbour.put("a/1", b"1")
    await s3_blobs.delete_all("a")
    assert await s3_blobs.list("") == []
    assert await neighbour.list("") == ["a/1"]


async def assert_unavailable(blobs: S3Blobs, reason: str) -> None:
    """Expect that every call says so, and that nothing passes for missing or taken."""
    calls = [
        blobs.put(KEY, b"1"),
        blobs.get(KEY),
        anext(blobs.stream(KEY)),
        blobs.list("batches"),
        blobs.delete([KEY]),
        blobs.probe(),
    ]
    for end in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(end, BlobsUnavailable)
        assert reason in end.reason
        assert "stand-in-secret" not in end.reason


async def test_a_bucket_that_is_missing_is_no_missing_blob(s3: FakeS3) -> None:
    blobs = S3Blobs(place_at(s3.endpoint, bucket="another"), RandomIds())
    await assert_unavailable(blobs, "404")


async def test_a_store_that_refuses_us_is_unavailable(s3: FakeS3) -> None:
    blobs = S3Blobs(place_at(s3.endpoint, user="stranger"), RandomIds())
    await assert_unavailable(blobs, "403")


async def test_a_store_that_is_away_is_unavailable() -> None:
    await assert_unavailable(S3Blobs(place_at("http://127.0.0.1:1"), RandomIds()), "retries")


async def test_a_put_that_is_refused_leaves_nothing(s3: FakeS3, s3_blobs: S3Blobs) -> None:
    s3.faults.append(deny)
    with pytest.raises(BlobsUnavailable):
        await s3_blobs.put(KEY, b"1")
    with pytest.raises(BlobMissing):
        await s3_blobs.get(KEY)


async def test_the_probe_leaves_nothing(s3: FakeS3, s3_blobs: S3Blobs) -> None:
    await s3_blobs.probe()
    assert s3.objects == {}


async def test_the_probe_finds_a_store_that_overwrites(s3: FakeS3, s3_blobs: S3Blobs) -> None:
    s3.ignores_conditions = True
    with pytest.raises(BlobsUnavailable) as refused:
        await s3_blobs.probe()
    assert "If-None-Match" in refused.value.reason
    assert s3.objects == {}


async def test_what_is_configured_goes_before_the_environment(
    s3: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "stranger",
        "AWS_SECRET_ACCESS_KEY": "unknown",
        "AWS_SESSION_TOKEN": "unknown",
        "AWS_REGION": "eu-west-3",
        "AWS_BUCKET": "another",
    }.items():
        monkeypatch.setenv(name, value)
    await S3Blobs(place_at(s3.endpoint), RandomIds()).put(KEY, b"1")
    assert "x-amz-security-token" not in s3.seen[0].headers
    assert "/us-east-1/s3/" in s3.seen[0].headers["Authorization"]
