"""The data folder: made once, locked by the one process that may write to it.

    <data>/tollhouse.db      the SQLite database; beside it, its server's lock: tollhouse.db.lock
    <data>/journal/          charges on their way to the database, in a folder for each process
    <data>/journal-marks/    how much of them there is: a journal that was emptied is noticed
    <data>/blobs/            requests and results of batches
    <data>/vault.keys        the key-encryption keys of secrets, mode 0600
    <data>/egress/           the ways out of running sessions
    <data>/interns/          the workspaces of interns
    <data>/logs/             the server's log, in at most five files
    <data>/notify/           sockets of the processes that share an SQLite database
    <data>/.lock             flock'd by the owner; holds its pid and address as JSON
    <data>/control.sock      the owner's door for commands on this machine, mode 0600
    <data>/workers.sock      where its workers come, if it has several processes, mode 0600

The lock ends with the process that holds it, however that ends; the file stays.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tollhouse.kernel.errors import StartError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a data folder."""

    pid: int
    address: str | None
    """Where it serves, as a URL; None for a command that serves nothing."""


class FolderInUse(StartError):
    """Another process holds the data folder."""

    def __init__(self, folder: Path, owner: Owner | None) -> None:
        who = "another process"
        if owner is not None:
            who = f"process {owner.pid}"
            if owner.address is not None:
                who += f", which serves {owner.address}"
        super().__init__(
            f"the data folder {folder} is in use by {who}: "
            "stop it, or choose another folder with --data-dir"
        )
        self.owner = owner


class DataFolder:
    """A folder on local disk, and the lock on it.

    Use it as a context manager to hold the lock; it is released when the process ends, however
    it ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "tollhouse.db"
        self.journal = path / "journal"
        self.blobs = path / "blobs"
        self.vault_keys = path / "vault.keys"
        self.egress = path / "egress"
        self.interns = path / "interns"
        self.notify = path / "notify"
        self.server_log = path / "logs" / "server.log"
        self.control_socket = path / "control.sock"
        self.workers_socket = path / "workers.sock"
        self._lock_file = path / ".lock"
        self._lock: int | None = None

    def lock(self, address: str | None = None) -> None:
        """Make the folder where it is missing and take it for this process, which serves `address`.

        Raises:
            FolderInUse: Another process holds it; its message says which.
            StartError: It cannot be made or written.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._not_writable(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = json.dumps({"pid": os.getpid(), "address": address}).encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner, 0)
        except BlockingIOError:
            os.close(descriptor)
            raise FolderInUse(self.path, self.owner()) from None
        except OSError as error:
            os.close(descriptor)
            raise self._not_writable(error) from None
        self._lock = descriptor

    @property
    def lock_descriptor(self) -> int | None:
        """That of the lock: the folder is held for as long as any process has it."""
        return self._lock

    def owner(self) -> Owner | None:
        """Return who wrote the lock file last; None where that cannot be told."""
        try:
            facts = json.loads(self._lock_file.read_text())
            return Owner(pid=int(facts["pid"]), address=facts["address"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def release(self) -> None:
        """Give the folder free."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.lock()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _not_writable(self, error: OSError) -> StartError:
        return StartError(
            f"the data folder {self.path} cannot be written ({error.strerror}): "
            "mend its permissions, or choose another folder with --data-dir"
        )
