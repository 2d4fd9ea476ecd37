"""Blobs in an S3-compatible store.

    put     PUT, If-None-Match: *, with the name of this writer
               ├─ 200                        it is ours
               └─ 412 ──> who wrote it? ──┬─ we: an answer to an earlier try was lost
                                          └─ another one: BlobExists

A request that failed is sent again, so that the first of two tries may have been the one that
wrote. The writer's name, another one for each `put`, tells it from a lost race. A blob goes up in
one request, so that nothing of it is seen before all of it is there.

Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from tollhouse.storage.blobs import (
    PIECE,
    BlobExists,
    BlobMissing,
    BlobsUnavailable,
    check_key,
    check_prefix,
    storage_failures,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Sequence

    from obstore.store import S3Config, S3Credential

    from tollhouse.kernel.ids import IdSource
    from tollhouse.kernel.secret import Secret

_WRITER: Final = "tollhouse-writer"
"""The blob's attribute with the name of its writer."""
_NO_BUCKET: Final = "NoSuchBucket"
_REQUEST_SECONDS: Final = 60
"""How long one request may take, with all of its body."""
_RETRIES: Final = 4
_RETRY_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Whom the store lets in."""

    access_key_id: str
    secret_access_key: Secret


@dataclass(frozen=True, slots=True)
class S3Place:
    """Where the blobs are."""

    bucket: str
    prefix: str = ""
    """What every key is put behind, without a `/` at its ends."""
    endpoint: str | None = None
    """The store's URL, `https://` or `http://`; None for Amazon's own, or what the environment
    names (`AWS_ENDPOINT_URL`)."""
    region: str | None = None
    """None for what the environment names (`AWS_REGION`), or `us-east-1`."""
    credentials: S3Credentials | None = None
    """None for the environment's (`AWS_ACCESS_KEY_ID` and its kin), or the machine's role."""


class S3Blobs:
    """Blobs in a bucket; fulfils `Blobs`."""

    def __init__(self, place: S3Place, ids: IdSource) -> None:
        """Name the place, and what names writers; nothing is asked of the store yet."""
        self._store = _store(place)
        self._ids = ids

    async def put(self, key: str, data: bytes) -> None:
        """Create a blob; see `Blobs.put`."""
        check_key(key)
        writer = self._ids.uuid()
        with _failures():
            try:
                await obstore.put_async(
                    self._store,
                    key,
                    data,
                    mode="create",
                    use_multipart=False,
                    attributes={_WRITER: writer},
                )
            except AlreadyExistsError:
                if await self._writer(key) != writer:
                    raise BlobExists(key) from None

    def staging(self) -> Path:
        """Return the machine's folder for temporary files."""
        return Path(tempfile.gettempdir())

    async def put_file(self, key: str, path: Path) -> None:
        """Create a blob of a file, which is read into memory; see `Blobs.put_file`."""
        await self.put(key, await asyncio.to_thread(_take, path))

    async def get(self, key: str) -> bytes:
        """Return all of a blob; see `Blobs.get`."""
        check_key(key)
        with _failures(key):
            answer = await obstore.get_async(self._store, key)
            return (await answer.bytes_async()).to_bytes()

    async def stream(self, key: str) -> AsyncGenerator[bytes]:
        """Give a blob in pieces; see `Blobs.stream`.

        Each piece is a request: the time that one may take is not the reader's.
        """
        check_key(key)
        size = await self._size(key)
        for start in range(0, size, PIECE):
            with _failures(key):
                piece = await obstore.get_range_async(
                    self._store, key, start=start, end=min(start + PIECE, size)
                )
            yield piece.to_bytes()

    async def list(self, prefix: str) -> Sequence[str]:
        """Return the keys in a folder; see `Blobs.list`."""
        check_prefix(prefix)
        with _failures():
            # The overloads for Arrow, which is not asked for, have no types here.
            listed = obstore.list(self._store, prefix or None)  # pyright: ignore[reportUnknownMemberType]
            found = await listed.collect_async()
        return sorted(blob["path"] for blob in found)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete blobs; see `Blobs.delete`."""
        keys = tuple(keys)
        for key in keys:
            check_key(key)
        if keys:
            with _failures():
                await obstore.delete_async(self._store, keys)

    async def delete_all(self, prefix: str) -> None:
        """Delete every blob in a folder; see `Blobs.delete_all`."""
        check_key(prefix)
        await self.delete(await self.list(prefix))

    async def probe(self) -> None:
        """Return if the store lets us write and delete, and refuses to overwrite; at a start.

        Raises:
            BlobsUnavailable: It does not. A store that takes a blob twice knows no conditional
                writes: two workers could each believe that they were first.
        """
        key = f"probe/{self._ids.uuid()}"
        await self.put(key, b"1")
        try:
            await self.put(key, b"2")
        except BlobExists:
            return
        finally:
            await self.delete([key])
        raise BlobsUnavailable("the store overwrites: it ignores If-None-Match")

    async def _size(self, key: str) -> int:
        with _failures(key):
            try:
                answer = await obstore.get_async(self._store, key, options={"head": True})
            except FileNotFoundError:
                # The answer to a HEAD has no body to say whether the blob or the bucket is missing.
                answer = await obstore.get_async(self._store, key)
        return answer.meta["size"]

    async def _writer(self, key: str) -> str | None:
        try:
            answer = await obstore.get_async(self._store, key, options={"head": True})
        except FileNotFoundError:  # deleted since
            return None
        return answer.attributes.get(_WRITER)


def _take(path: Path) -> bytes:
    """Return a file's content, and remove it."""
    with storage_failures():
        try:
            return path.read_bytes()
        finally:
            path.unlink()


def _store(place: S3Place) -> S3Store:
    # Named whether or not the environment names another one: what it says may not undo the fence,
    # nor lead elsewhere than the settings.
    config: S3Config = {"conditional_put": "etag"}
    if place.endpoint is not None:
        config["endpoint"] = config["aws_endpoint_url_s3"] = place.endpoint
    if place.region is not None:
        config["region"] = place.region
    return S3Store(
        place.bucket,
        prefix=place.prefix or None,
        config=config,
        client_options={
            "allow_http": place.endpoint is not None and place.endpoint.startswith("http://"),
            "timeout": timedelta(seconds=_REQUEST_SECONDS),
        },
        retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
        credential_provider=None if place.credentials is None else _Given(place.credentials),
    )


class _Given:
    """Hands credentials to the client when it signs; its own configuration would show them."""

    def __init__(self, credentials: S3Credentials) -> None:
        self._credentials = credentials

    def __call__(self) -> S3Credential:
        return {
            "access_key_id": self._credentials.access_key_id,
            "secret_access_key": self._credentials.secret_access_key.reveal(),
            "token": None,
            "expires_at": None,
        }


@contextmanager
def _failures(key: str | None = None) -> Generator[None]:
    """Make errors of the client ours; `key` is of the blob that may be missing, if one may."""
    try:
        yield
    except FileNotFoundError as error:
        if key is None or _NO_BUCKET in str(error):
            raise _unavailable(error) from error
        raise BlobMissing(key) from None
    except (BaseError, OSError, ValueError) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> BlobsUnavailable:
    lines = str(error).splitlines()  # what follows is the client's inner state
    return BlobsUnavailable(f"the store of blobs: {lines[0] if lines else type(error).__name__}")
