"""What a runtime promises, whichever it is.

    runtime.problem()            why it cannot be used here, and what to install
    runtime.sweep()              nothing of sandboxes that a killed server left remains
    runtime.start(launch) ──> Sandbox
                                  │  .wait()        until it has ended, by itself or not
                                  └  .stop(seconds) until nothing of it is left

A sandbox ends with the process that started it, however that ends. All that it leaves is what
stands in its workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tollhouse.kernel.errors import TollhouseError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path


class RuntimeFailed(TollhouseError):
    """A sandbox did not start. The message is for the intern's owner: no path, no secret."""

    kind = "upstream"
    code = "server"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one sandbox may use."""

    memory_bytes: int
    """Of all its processes, and of what it keeps in memory as files."""
    processes: int
    """Processes and threads."""
    cpus: float
    """Cores' worth of time."""
    disk_bytes: int
    """Of its workspace."""
    open_files: int
    """Of each process."""
    files: int
    """Files and folders in its workspace."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a sandbox is started with."""

    name: str
    """Of the sandbox; letters, digits and hyphens, one at a time on a machine."""
    user: int
    """Number of the user that it runs as, where the server may choose: one of the sandbox alone."""
    workspace: Path
    """Folder of the host that the sandbox sees as `/workspace`, and alone may write to."""
    egress: Path
    """Folder of the host with the way out; see `vault.egress.session_folder`. Seen at
    `/run/egress`, read-only."""
    listener: socket.socket
    """Where the daemon listens; made by the host, and handed in as a descriptor."""
    settings: Mapping[str, object] = field(repr=False)
    """What the daemon is told first, as one line of JSON on its standard input, which stays open:
    its end is the daemon's."""
    limits: SandboxLimits


class Sandbox(Protocol):
    """A sandbox that runs."""

    limits_enforced: frozenset[str]
    """Which fields of `SandboxLimits` this machine makes it keep."""

    @property
    def disk_full(self) -> bool:
        """Whether it can write no more, since its workspace, or the machine's disk, is full.

        It can delete, and write again once that has helped.
        """
        ...

    def memory_full(self) -> bool:
        """Tell whether its programs use all the memory that they may; call it in a thread."""
        ...

    async def wait(self) -> str:
        """Wait until it has ended; return how, in words for its owner."""
        ...

    async def stop(self, seconds: float) -> None:
        """End it: politely, and after so many seconds by force. May be asked for twice.

        When this returns no process of it runs, and nothing of it is left on the host but its
        workspace.
        """
        ...


class Runtime(Protocol):
    """Starts sandboxes."""

    name: str
    """As the settings spell it."""

    def problem(self) -> str | None:
        """Return why no sandbox can be started on this machine, and what to do; None where one can.

        It asks the machine each time: what is missing may be installed meanwhile. That may take
        a moment, so call it in a thread. The text is shown to an intern's owner too: no path, and
        nothing that a program has said; the log has that.
        """
        ...

    def limits_enforced(self, limits: SandboxLimits) -> frozenset[str]:
        """Return which fields of limits this machine would make a sandbox keep.

        It tries, which takes a moment: call it in a thread.
        """
        ...

    async def start(self, launch: Launch) -> Sandbox:
        """Start a sandbox with a daemon; raises `RuntimeFailed`, and nothing is left of it then."""
        ...

    async def sweep(self) -> None:
        """Remove what the sandboxes of a killed server have left on this machine."""
        ...
