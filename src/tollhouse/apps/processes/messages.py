"""What the supervisor and the processes of its server say to each other, on a socket for each.

    supervisor ── Begin ──> process          first: what it is, and what it inherits
               <── Ready ──                  it answers
               ── Stop ──>                   end; connections are closed, or handed over
               <── Quiet ──                  control: interns have ended, workers may
               ── Finish ──>                 control: workers have ended
               ── Report ──>                 say what you have counted
               <── Reported ──               the answer; the last one comes by itself
               <── Gather ──                 control: what of the other processes?
               ── Gathered ──>               the answer

The end of the socket means Stop to a process. A process that gets SIGTERM ends as if it were to be
replaced, which it is; but control waits for Finish, so that who stops all processes of a service at
once does not end it before the workers.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tollhouse.kernel.channel import Channel
from tollhouse.observability.merging import Family

if TYPE_CHECKING:
    from tollhouse.settings.sections import Settings

_LARGEST: Final = 16_777_216


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """What a process is."""

    role: Literal["control", "worker"]
    name: str
    options: dict[str, str | None]
    """Those of the command line, from which it reads the settings."""
    fixed: str
    """What the settings must say, see `fixed_part`."""
    address: str
    """The server's URL."""
    addresses: int
    """That of the table of client addresses."""
    rows: int
    """How many processes it has room for."""
    row: int
    """The process's own place in it."""
    key: bytes
    """Of the table's hash."""
    public: list[int] = []
    """The sockets of the public port, the process's own first; none for control."""
    local: int | None = None
    """That of commands on this machine, for control."""
    links: int | None = None
    """That on which workers come, for control."""

    def __repr__(self) -> str:
        """Show no option: one may be the address of a database."""
        return f"{type(self).__name__}({self.name!r})"


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """End, once what runs has ended."""

    hand_over: bool
    """Whether other processes go on, and take the connections."""


class Finish(msgspec.Struct, tag="finish", frozen=True):
    """End: no worker needs the control process any more."""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """It answers."""

    keys: dict[str, str] | None = None
    """Of a first start."""
    example_model: str | None = None

    def __repr__(self) -> str:
        """Show no key."""
        return f"{type(self).__name__}()"


class Quiet(msgspec.Struct, tag="quiet", frozen=True):
    """No intern runs any more."""


class Report(msgspec.Struct, tag="report", frozen=True):
    """Say what you have counted."""


class Reported(msgspec.Struct, tag="reported", frozen=True):
    """What a process has counted so far."""

    families: list[Family]


class Gather(msgspec.Struct, tag="gather", frozen=True):
    """Say what the other processes are."""

    number: int
    counts: bool
    """Whether they are to be asked what they have counted."""


class Gathered(msgspec.Struct, tag="gathered", frozen=True):
    """What the other processes are."""

    number: int
    """That of the question."""
    workers: int
    """How many workers answer."""
    families: list[Family]
    """What all others have counted, with those that have ended."""


ToProcess = Begin | Stop | Finish | Report | Gathered
FromProcess = Ready | Quiet | Reported | Gather
TO_PROCESS: Final[Channel[ToProcess]] = Channel(ToProcess, largest=_LARGEST)
FROM_PROCESS: Final[Channel[FromProcess]] = Channel(FromProcess, largest=_LARGEST)


def fixed_part(settings: Settings) -> str:
    """Return a text that is the same while nothing changes that the supervisor holds itself."""
    url = settings.database_url
    facts = (
        *(settings.server.host, settings.server.port, settings.server.workers),
        *(settings.data_dir.absolute(), None if url is None else url.reveal()),
    )
    return sha256(repr(facts).encode()).hexdigest()
