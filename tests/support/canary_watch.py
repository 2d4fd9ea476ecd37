"""Checks at the end of a run that no secret is in a file that it wrote or in a response.

Answers that hold one are kept in a file, where the search at the end finds them: a run in several
processes has one end.
"""

from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from tests.support.canaries import PLANTED, PROVIDER_KEY, Scanner

_SEEN = "/_seen"
"""The path on which a fake provider shows a test its requests."""
_OVERLAP = 128
"""Bytes of a piece that are searched again with the next."""


def leaks_in(folder: Path) -> list[str]:
    """Return the files below a folder, and cells of its databases, that hold a planted value."""
    scanner = Scanner([*PLANTED, PROVIDER_KEY])
    return sorted(
        {f"{path.relative_to(folder)} ({place})" for path, place in _found(scanner, folder)}
    )


def _found(scanner: Scanner, folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            for place, _ in scanner.in_file(path):
                yield path, place


def _url(answer: httpx2.Response) -> str:
    """Return the request's URL; a response that a test has built has none."""
    try:
        return str(answer.url)
    except RuntimeError:
        return ""


def watch_answers(patch: pytest.MonkeyPatch, folder: Path, key: str = PROVIDER_KEY) -> None:
    """Record the responses to this process's HTTP clients that show a provider's key."""
    scanner = Scanner([key])
    plain, awaited = httpx2.Response.iter_raw, httpx2.Response.aiter_raw

    def look(url: str, seen: bytes) -> bytes:
        if not url.endswith(_SEEN) and scanner.in_bytes(url, seen):
            name = f"answer-{sha256(seen).hexdigest()[:12]}"
            folder.joinpath(name).write_bytes(url.encode() + b"\n" + seen)
        return seen[-_OVERLAP:]

    def iter_raw(self: httpx2.Response, chunk_size: int | None = None) -> Iterator[bytes]:
        url = _url(self)
        end = look(url, repr(self.headers.raw).encode())
        for piece in plain(self, chunk_size):
            end = look(url, end + piece)
            yield piece

    async def aiter_raw(
        self: httpx2.Response, chunk_size: int | None = None
    ) -> AsyncIterator[bytes]:
        url = _url(self)
        end = look(url, repr(self.headers.raw).encode())
        async for piece in awaited(self, chunk_size):
            end = look(url, end + piece)
            yield piece

    patch.setattr(httpx2.Response, "iter_raw", iter_raw)
    patch.setattr(httpx2.Response, "aiter_raw", aiter_raw)
