"""What a server and the worker of a job on a workspace say to each other.

The server imports nothing of the worker, which opens its output and loads what makes archives.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tollhouse.interns.workspaces.contents import DiskUsage
from tollhouse.kernel.channel import Channel

LARGEST_PIECE: Final = 1024 * 1024
"""Bytes of an `ArchivePiece`."""
JobKind = Literal["digest", "measure", "pack"]


class Order(msgspec.Struct, frozen=True):
    """What a worker is to do."""

    job: JobKind
    folder: str
    memory_bytes: int
    """That the process may have."""
    flush: bool = False
    """Whether the files that are digested are to be on the disk before."""
    processes: list[int] = []
    """The programs of a workspace that is measured."""


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """The job goes on."""


class ArchivePiece(msgspec.Struct, tag="piece", frozen=True):
    """A part of an archive."""

    data: bytes


class Found(msgspec.Struct, tag="found", frozen=True):
    """The job is done."""

    result: str | DiskUsage | None


class JobFailed(msgspec.Struct, tag="failed", frozen=True):
    """The job cannot be done."""

    errno: int = 0
    out_of_memory: bool = False


FromWorker = Alive | ArchivePiece | Found | JobFailed
FROM_WORKER: Final[Channel[FromWorker]] = Channel(FromWorker, largest=LARGEST_PIECE + 1024)
