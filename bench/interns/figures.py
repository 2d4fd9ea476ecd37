"""How much is measured of interns, and what comes of it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST: Final = "first of a server"
LATER: Final = "later one"
BESIDE: Final = "beside others"
RESUMED: Final = "resumed"
WITH_FILES: Final = "with files"
BOOTS: Final = (FIRST, LATER, BESIDE, RESUMED, WITH_FILES)
"""Kinds of boots; the last two are those of suspended interns."""

ASKED: Final = "Asked, not begun"
SEEN: Final = "Running, not seen yet"

_STEP: Final = re.compile(r"provisioning \((\d+)/\d+: (.+)\)")
_RUNS: Final = "running"


@dataclass(frozen=True, slots=True)
class InternDose:
    """How much is measured."""

    servers: int = 5
    """Each has a first intern."""
    later: int = 4
    """Further ones of each server."""
    suspends: int = 10
    """Of an intern without files."""
    suspends_with_files: int = 5
    files: int = 1_000
    file_bytes: int = 100_000
    """Of each of them."""
    running: tuple[int, ...] = (1, 10, 20)
    """How many idle ones memory is measured with."""
    grow_seconds: float = 60.0
    """After so long no further one is started."""
    settle_seconds: float = 2.0
    """Between a start and a look at memory."""
    idle_seconds: float = 10.0
    """How long CPU time is counted in which nobody asks for anything."""
    chats: int = 5
    """Rounds of chats; four chats each."""
    paced_pieces: int = 200
    paced_milliseconds: float = 5.0
    """Between two pieces of a paced chat."""
    fast_pieces: int = 5_000
    """Of a chat that comes as fast as it can."""
    first_runs: int = 10
    """Of agents, each in a sandbox that was just made."""
    agent_seconds: float = 330.0
    """The longest wait for the end of an agent that does nothing, once; 0 for none."""

    @property
    def files_bytes(self) -> int:
        """How much all files hold together."""
        return self.files * self.file_bytes


QUICK_INTERNS: Final = InternDose(
    servers=1,
    later=1,
    suspends=1,
    suspends_with_files=1,
    files=20,
    file_bytes=1_000,
    running=(1, 2),
    settle_seconds=0.2,
    idle_seconds=0.3,
    chats=1,
    paced_pieces=10,
    fast_pieces=100,
    first_runs=1,
    agent_seconds=0.0,
)


@dataclass(frozen=True, slots=True)
class Boot:
    """An intern from the request until a client sees that it runs, by the clock."""

    seconds: float
    steps: dict[str, float]
    """Seconds of each step, in their order; together they are all of it."""


@dataclass(frozen=True, slots=True)
class Alone:
    """What of a boot takes so long without a gateway, in the same round, by the clock."""

    bubblewrap_seconds: float
    """A sandbox made, `true` run in it, and all of it gone."""
    daemon_seconds: float
    """A daemon from its start to its first answer, without a sandbox."""

    @property
    def seconds(self) -> float:
        """Both, one after the other."""
        return self.bubblewrap_seconds + self.daemon_seconds


@dataclass(frozen=True, slots=True)
class Suspension:
    """An intern from the request until its files are safe, by the clock."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Files:
    """As many files of the same sizes, flushed and read by this process alone, by the clock."""

    flush_seconds: float
    digest_seconds: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes while some interns do nothing."""

    running: int
    daemon: float
    """PSS of a daemon, the mean of all."""
    bubblewrap: float
    """PSS of the bubblewraps around one."""
    most: int
    """PSS of the largest sandbox."""
    server: int
    """RSS, without its children."""
    proxy: int
    """RSS of the egress proxy; 0 before there is one."""

    @property
    def sandbox(self) -> float:
        """PSS of all processes of a sandbox, the mean of all."""
        return self.daemon + self.bubblewrap


@dataclass(frozen=True, slots=True)
class Idling:
    """CPU seconds of a stretch of time in which nobody asks for anything."""

    running: int
    seconds: float
    """How long it was, by the clock."""
    sandboxes: float
    """Of all of them together."""
    server: float
    proxy: float


@dataclass(frozen=True, slots=True)
class ChatSide:
    """A chat one way."""

    delay_seconds: float
    """From the moment at which the daemon writes a piece until the client has it; the median."""
    first_seconds: float
    """The same of the first piece."""
    server_seconds: float
    """CPU time of the server for a piece, at full speed."""
    talker_seconds: float
    """The same of what stands for the daemon."""
    piece_seconds: float
    """Of a piece at full speed, by the clock."""


@dataclass(frozen=True, slots=True)
class ChatRound:
    """The same chat twice, one right after the other."""

    alone: ChatSide
    """With the daemon alone."""
    through: ChatSide
    """Through the gateway."""


@dataclass(frozen=True, slots=True)
class FirstRun:
    """The first two runs in a sandbox; the first one starts its agent."""

    first_seconds: float
    """From the prompt until its first text, by the clock."""
    cpu_seconds: float
    """CPU time of the sandbox for the first run, most of it the agent's start."""
    later_seconds: float
    """From the next prompt until its first text, by the clock."""
    before: float
    """PSS of the sandbox before the first prompt, in bytes."""
    after: float
    """The same once both runs are over; the agent waits for another one."""


@dataclass(slots=True)
class InternFigures:
    """Everything that was measured."""

    boots: dict[str, list[Boot]] = field(default_factory=dict)
    """By their kind."""
    alone: dict[str, list[Alone]] = field(default_factory=dict)
    """Right before each boot, by its kind."""
    suspensions: dict[str, list[Suspension]] = field(default_factory=dict)
    """By the kind of the boot that follows."""
    files: list[Files] = field(default_factory=list[Files])
    """Right before each suspension with files."""
    memory: list[Memory] = field(default_factory=list[Memory])
    """With none, then with more and more."""
    daemon_alone: int = 0
    """PSS of a daemon without a sandbox, beside a server without interns."""
    idling: list[Idling] = field(default_factory=list[Idling])
    """With none, and with the most."""
    chats: list[ChatRound] = field(default_factory=list[ChatRound])
    first_runs: list[FirstRun] = field(default_factory=list[FirstRun])
    agent_ended: float | None = None
    """PSS of a sandbox whose agent has ended because nobody asked for a run, in bytes."""
    bubblewrap: str = ""
    """Its version."""
    load_average: float = 0.0
    """Of the machine, in the minute before."""


def boot(began: datetime, ended: datetime, log: Sequence[tuple[str, str]]) -> Boot:
    """Return the last boot in an intern's log, step by step.

    Args:
        began: When it was asked for, by the clock that the log's times are of.
        ended: When it was seen to run.
        log: Times and texts, the oldest first.

    Raises:
        ValueError: It holds no boot that ended well.
    """
    lines = [(datetime.fromisoformat(at), text) for at, text in log]
    starts = [at for at, (_, text) in enumerate(lines) if text.startswith("provisioning (1/")]
    if not starts or lines[-1][1] != _RUNS:
        message = f"no boot that ended well in {[text for _, text in log]}"
        raise ValueError(message)
    marks = [(ASKED, began)]
    for at, text in lines[starts[-1] :]:
        found = _STEP.fullmatch(text)
        marks.append((SEEN if found is None else found[2], at))
    ends = [*(at for _, at in marks[1:]), ended]
    steps = {name: (end - at).total_seconds() for (name, at), end in zip(marks, ends, strict=True)}
    return Boot((ended - began).total_seconds(), steps)


def growth(memory: Sequence[Memory], name: str) -> float:
    """Return by how many bytes something grows for one more intern.

    Args:
        memory: From the fewest interns to the most, none left out.
        name: `server` or `proxy`.
    """
    fewest, most = memory[0], memory[-1]
    more = most.running - fewest.running
    return (getattr(most, name) - getattr(fewest, name)) / more if more else 0.0


def of_hundred(memory: Sequence[Memory]) -> float:
    """Return the bytes that a hundred idle interns would take more than one server without any.

    Reckoned from the most that ran: each further one is taken to cost as much as those did.
    """
    some = [each for each in memory if each.running]
    none = next(each for each in memory if not each.running)
    first = some[0]
    begun = first.server - none.server + first.proxy
    each = some[-1].sandbox + growth(some, "server") + growth(some, "proxy")
    return begun + 100 * each
