"""Blob stores: a local folder, and S3 (the fake, or that of `TOLLHOUSE_TEST_S3_URL`).

That URL is `http://<access key id>:<secret>@<host>:<port>/<bucket>`; each test has a prefix of its
own in the bucket, and empties it.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.fake_s3 import ACCESS_KEY_ID, BUCKET, FakeS3, run_fake_s3
from tollhouse.kernel.ids import RandomIds
from tollhouse.kernel.secret import Secret
from tollhouse.storage.blobs import Blobs, LocalBlobs
from tollhouse.storage.s3_blobs import S3Blobs, S3Credentials, S3Place


def place_at(endpoint: str, bucket: str = BUCKET, user: str = ACCESS_KEY_ID) -> S3Place:
    credentials = S3Credentials(user, Secret("stand-in-secret"))
    return S3Place(bucket, f"test/{RandomIds().uuid()}", endpoint, "us-east-1", credentials)


def real_place(url: str) -> S3Place:
    parts = urlsplit(url)
    credentials = S3Credentials(parts.username or "", Secret(parts.password or ""))
    endpoint = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    bucket = parts.path.strip("/")
    return S3Place(bucket, f"test/{RandomIds().uuid()}", endpoint, "us-east-1", credentials)


@pytest.fixture
async def s3() -> AsyncIterator[FakeS3]:
    """A fake S3."""
    async with run_fake_s3() as store:
        yield store


@pytest.fixture
def s3_blobs(s3: FakeS3) -> S3Blobs:
    """Blobs in the fake S3."""
    return S3Blobs(place_at(s3.endpoint), RandomIds())


@pytest.fixture
def local_blobs(tmp_path: Path) -> LocalBlobs:
    """Blobs in a folder."""
    return LocalBlobs(tmp_path / "blobs")


@pytest.fixture(params=["local", "s3"])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Blobs]:
    """A store without blobs."""
    given = os.environ.get("TOLLHOUSE_TEST_S3_URL")
    if request.param == "local":
        yield LocalBlobs(tmp_path / "blobs")
    elif given:
        store = S3Blobs(real_place(given), RandomIds())
        yield store
        await store.delete(await store.list(""))
    else:
        async with run_fake_s3() as stand_in:
            yield S3Blobs(place_at(stand_in.endpoint), RandomIds())
