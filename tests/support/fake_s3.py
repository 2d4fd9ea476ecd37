"""A fake S3 in this process, with the requests that the blob store uses, and faults on demand.

It keeps what S3 promises of these calls: `If-None-Match: *` is decided in one step, a range may end
past the blob's end but not begin there, a list comes in pages, deleting what is missing succeeds.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/ (PutObject, GetObject, ListObjectsV2,
DeleteObjects)
"""

import asyncio
import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from xml.etree import ElementTree as ET

from aiohttp import web

BUCKET: Final = "blobs"
ACCESS_KEY_ID: Final = "stand-in"
_WHEN: Final = "2026-01-01T00:00:00.000Z"
_WHEN_HTTP: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
_NAMESPACE: Final = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_LONGEST_START: Final = 60.0
_LARGEST_BODY: Final = 64 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Fault = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]


class FakeS3:
    """A running server."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.seen: list[web.Request] = []
        self.page = 1000
        """Keys in one page of a list."""
        self.faults: deque[Fault] = deque()
        """The faults of the next requests, one each."""
        self.ignores_conditions = False
        """Overwrite whatever the condition says, as older stores do."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if self.faults:
            return await self.faults.popleft()(request, self._answer)
        return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if f"Credential={ACCESS_KEY_ID}/" not in request.headers.get("Authorization", ""):
            return error(403, "InvalidAccessKeyId")
        bucket, _, key = request.path.removeprefix("/").partition("/")
        if bucket != BUCKET:
            return error(404, "NoSuchBucket")
        if request.method == "PUT":
            return await self._put(request, key)
        if request.method == "POST" and "delete" in request.query:
            return await self._delete(request)
        if request.query.get("list-type") == "2":
            return self._list(request)
        return self._get(request, key)

    async def _put(self, request: web.Request, key: str) -> web.Response:
        body = await request.read()
        unconditional = self.ignores_conditions or request.headers.get("If-None-Match") != "*"
        if key in self.objects and not unconditional:
            return error(412, "PreconditionFailed")
        metadata = {
            name: value
            for name, value in request.headers.items()
            if name.lower().startswith("x-amz-meta-")
        }
        self.objects[key] = (body, metadata)
        return web.Response(headers={"ETag": '"1"'})

    def _get(self, request: web.Request, key: str) -> web.Response:
        if key not in self.objects:
            return error(404, "NoSuchKey")
        body, metadata = self.objects[key]
        headers = {"ETag": '"1"', "Last-Modified": _WHEN_HTTP, **metadata}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        if asked is None:
            headers["Content-Length"] = str(len(body))  # also of an empty one, to a HEAD
            return web.Response(body=body, headers=headers)
        start, end = int(asked[1]), int(asked[2]) + 1
        if start >= len(body):
            return error(416, "InvalidRange")
        part = body[start:end]
        headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(body)}"
        return web.Response(status=206, body=part, headers=headers)

    def _list(self, request: web.Request) -> web.Response:
        prefix, after = request.query.get("prefix", ""), request.query.get("continuation-token", "")
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        page, is_cut = keys[: self.page], len(keys) > self.page
        contents = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.objects[key][0])}</Size>"
            f"<LastModified>{_WHEN}</LastModified><ETag>1</ETag></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if is_cut else ""
        return xml(
            f"<ListBucketResult>{contents}<IsTruncated>{str(is_cut).lower()}</IsTruncated>{token}"
            "</ListBucketResult>"
        )

    async def _delete(self, request: web.Request) -> web.Response:
        asked = ET.fromstring(await request.text())  # noqa: S314 - written by the client under test
        keys = [key.text or "" for key in asked.iter() if key.tag.removeprefix(_NAMESPACE) == "Key"]
        for key in keys:
            self.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return xml(f"<DeleteResult>{deleted}</DeleteResult>")


def xml(body: str, status: int = 200) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?>{body}'
    return web.Response(status=status, text=text, content_type="application/xml")


def error(status: int, code: str) -> web.Response:
    return xml(f"<Error><Code>{code}</Code></Error>", status)


async def lose_response(request: web.Request, answer: Handler) -> web.StreamResponse:
    """Do the work, then break the connection."""
    await answer(request)
    return await disconnect(request, answer)


async def disconnect(request: web.Request, _answer: Handler) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def slow_down(_request: web.Request, _answer: Handler) -> web.StreamResponse:
    return error(503, "SlowDown")


async def work_then_slow_down(request: web.Request, answer: Handler) -> web.StreamResponse:
    await answer(request)
    return error(503, "SlowDown")


async def deny(_request: web.Request, _answer: Handler) -> web.StreamResponse:
    return error(403, "AccessDenied")


async def truncate_body(request: web.Request, answer: Handler) -> web.StreamResponse:
    """Send half of the body that was promised."""
    whole = await answer(request)
    assert isinstance(whole, web.Response)
    assert isinstance(whole.body, bytes)
    response = web.StreamResponse(status=whole.status, headers=whole.headers)
    response.content_length = len(whole.body)
    await response.prepare(request)
    await response.write(whole.body[: len(whole.body) // 2])
    return await disconnect(request, answer)


@asynccontextmanager
async def run_fake_s3() -> AsyncGenerator[FakeS3]:
    """Run the server until the end of the block."""
    store = FakeS3()
    app = web.Application(client_max_size=_LARGEST_BODY)
    app.router.add_route("*", "/{path:.*}", store.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        store.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield store
    finally:
        await runner.cleanup()


@contextmanager
def s3_beside() -> Generator[FakeS3]:
    """Run a fake S3 in a thread."""
    ready, stores = threading.Event(), list[FakeS3]()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with run_fake_s3() as store:
            stores.append(store)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(_LONGEST_START)
        yield stores[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


def blobs_at(store: FakeS3) -> dict[str, object]:
    """Return the settings for a store."""
    return {
        "bucket": BUCKET,
        "endpoint": store.endpoint,
        "region": "us-east-1",
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": "secret",
    }
