"""What a store of blobs promises, whichever it is.

A blob is whole or not there. It is written once: a key that is taken stays as it is, so that of two
workers who write the same key exactly one goes on. Nothing is ever changed, only deleted.

    Bug
     ├─ InvalidKey          no relative path of safe names
     ├─ BlobExists          the key is taken: another writer was first
     └─ BlobMissing         there is none of that key
    Unavailable
     └─ BlobsUnavailable    the disk fails, the store cannot be reached or refuses us
         └─ BlobsFull       there is no room for it

Keys are ours and never a caller's. Whoever writes or reads knows what a taken or a missing key
means there; where nobody expected it, it is our own fault.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from tollhouse.kernel.errors import Bug, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

PIECE: Final = 1024 * 1024
"""Most bytes that `Blobs.stream` gives at once."""
LONGEST_KEY: Final = 700
"""Characters; with a prefix before it, S3 takes 1024."""
LONGEST_NAME: Final = 200
"""Characters of one segment; file systems take 255."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


class InvalidKey(Bug):
    """A key is no relative path of safe names."""

    def __init__(self, key: str, reason: str) -> None:
        """Say what is wrong with it."""
        super().__init__(f"{key!r} is no key of a blob: {reason}")
        self.key = key


class BlobExists(Bug):
    """The key is taken: another writer was first, and what it wrote stays."""

    def __init__(self, key: str) -> None:
        """Name the key."""
        super().__init__(f"there is a blob {key} already")
        self.key = key


class BlobMissing(Bug):
    """There is no blob of that key, or no longer."""

    def __init__(self, key: str) -> None:
        """Name the key."""
        super().__init__(f"there is no blob {key}")
        self.key = key


class BlobsUnavailable(Unavailable):
    """The disk fails, or the store cannot be reached or refuses us."""

    def __init__(self, reason: str) -> None:
        """Tell the caller to come back, and keep what happened for the log.

        Args:
            reason: What the operator has to know; the caller never sees it.
        """
        super().__init__("stored files cannot be read or written at the moment; try again later")
        self.reason = reason


class BlobsFull(BlobsUnavailable):
    """There is no room for it."""


class Blobs(Protocol):
    """Blobs by key, for as long as nobody deletes them.

    A key is a relative path like `batches/7f3a/input/00003.jsonl.zst`: names of letters, digits,
    `.`, `_` and `-`, none of them `.` or `..`. No key is a folder of another one.

    Every method raises `InvalidKey` for a key or a prefix that is none, before anything happens,
    and `BlobsUnavailable` where the store fails.
    """

    async def put(self, key: str, data: bytes) -> None:
        """Create a blob; when this returns, it survives a power failure.

        After `BlobsUnavailable`, or when the caller was cancelled, the blob is there whole, or will
        be, or not at all. Put it again: `BlobExists` says that it was there.

        Raises:
            BlobExists: The key is taken; its blob is as it was.
            BlobsFull: There is no room; nothing is left behind.
        """
        ...

    async def get(self, key: str) -> bytes:
        """Return all of a blob.

        Raises:
            BlobMissing: There is none.
        """
        ...

    def stream(self, key: str) -> AsyncIterator[bytes]:
        """Give a blob in pieces of at most `PIECE` bytes, the first when it is asked for.

        Nothing is held open between two pieces, however slow the reader is.

        Raises:
            BlobMissing: There is none, or it was deleted between two pieces.
        """
        ...

    async def list(self, prefix: str) -> Sequence[str]:
        """Return the keys in a folder and the folders below it, sorted.

        Args:
            prefix: Whole names: `batches/1` holds nothing of `batches/10`. Empty for every key.
        """
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete blobs; those that are missing are fine."""
        ...

    async def delete_all(self, prefix: str) -> None:
        """Delete every blob in a folder and the folders below it; none is fine.

        Args:
            prefix: As for `list`, but never empty. Nobody may write there meanwhile: what is put
                at the same time may stay.
        """
        ...


def check_key(key: str) -> None:
    """Return if a key may be used.

    Raises:
        InvalidKey: It may not.
    """
    if len(key) > LONGEST_KEY:
        raise InvalidKey(key, f"it is longer than {LONGEST_KEY} characters")
    for name in key.split("/"):
        if not _NAME.fullmatch(name) or name in {".", ".."}:
            raise InvalidKey(key, f"{name!r} is no safe name")
        if len(name) > LONGEST_NAME:
            raise InvalidKey(key, f"a name in it is longer than {LONGEST_NAME} characters")


def check_prefix(prefix: str) -> None:
    """Return if a prefix may be listed.

    Raises:
        InvalidKey: It may not.
    """
    if prefix:
        check_key(prefix)
