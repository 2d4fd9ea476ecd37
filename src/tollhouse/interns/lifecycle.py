"""What may be asked of an intern in which state, and which state follows. Pure.

    (create) ──> queued·idle ──provision──> queued·running ──> provisioning ──> running
                                                 ▲                  │              │ suspend
                                                 │                  ▼              ▼
                                                 ├──provision── failed        running·stopped
                                                 └──provision── stopped <──────────┘
    running, provisioning ──its server stops──> queued·running ──its machine stays away──> failed
    any that has settled ──delete──> destroying ──> (gone)
                                         └──> destroy_failed ──delete──> destroying

A state is a status and what the intern is to become. Both tables here, the one of refusals and the
one of transitions, are all that the guards in SQL are made from.

Source: the public gateway's intern life cycle; `MOVES` is what it leaves open.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.interns.types import Desired, Operation, Progress, State, Status

if TYPE_CHECKING:
    from collections.abc import Mapping


class Situation(StrEnum):
    """What a caller may be told of a state; the columns of the table of refusals."""

    AWAITING = "awaiting"
    IDLE = "idle"
    """Made, and never asked to run."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"
    STOPPED = "stopped"
    DESTROYING = "destroying"
    DESTROY_FAILED = "destroy_failed"


class Refusal(NamedTuple):
    """Why an operation is not for now."""

    reason: str
    retryable: bool


_BUSY: Final = Refusal("intern_busy", retryable=True)
"""Something is under way; it ends."""
_WRONG: Final = Refusal("intern_busy", retryable=False)
"""Nothing is under way: asking again changes nothing."""
_NOT_RUNNING: Final = Refusal("intern_not_running", retryable=False)
_NOT_READY: Final = Refusal("intern_not_ready", retryable=True)

_SITUATIONS: Final[Mapping[State, Situation]] = {
    State(Status.AWAITING_CHAT_INSTALL, Desired.IDLE): Situation.AWAITING,
    State(Status.QUEUED, Desired.IDLE): Situation.IDLE,
    State(Status.QUEUED, Desired.RUNNING): Situation.STARTING,
    State(Status.PROVISIONING, Desired.RUNNING): Situation.STARTING,
    State(Status.RUNNING, Desired.RUNNING): Situation.RUNNING,
    State(Status.RUNNING, Desired.STOPPED): Situation.STOPPING,
    State(Status.FAILED, Desired.IDLE): Situation.FAILED,
    State(Status.STOPPED, Desired.IDLE): Situation.STOPPED,
    State(Status.DESTROYING, Desired.ABSENT): Situation.DESTROYING,
    State(Status.DESTROY_FAILED, Desired.IDLE): Situation.DESTROY_FAILED,
}
STATES: Final = frozenset(_SITUATIONS)
"""Every state that there is."""

REFUSALS: Final[Mapping[Operation, Mapping[Situation, Refusal]]] = {
    Operation.PROVISION: {
        Situation.AWAITING: _WRONG,
        Situation.STARTING: _BUSY,
        Situation.RUNNING: _WRONG,
        Situation.STOPPING: _BUSY,
        Situation.DESTROYING: _BUSY,
        Situation.DESTROY_FAILED: _WRONG,
    },
    Operation.SUSPEND: {
        Situation.AWAITING: _WRONG,
        Situation.IDLE: _WRONG,
        Situation.STARTING: _BUSY,
        Situation.FAILED: _WRONG,
        Situation.DESTROYING: _BUSY,
        Situation.DESTROY_FAILED: _WRONG,
    },
    Operation.DELETE: {Situation.STARTING: _BUSY, Situation.STOPPING: _BUSY},
    Operation.PATCH: {Situation.DESTROYING: _WRONG},
    Operation.DAEMON: {
        situation: _NOT_RUNNING for situation in Situation if situation is not Situation.RUNNING
    },
    Operation.CHAT: {
        situation: _NOT_READY for situation in Situation if situation is not Situation.RUNNING
    },
}
"""What is refused; everything else is accepted."""

MOVES: Final[Mapping[Operation, State]] = {
    Operation.PROVISION: State(Status.QUEUED, Desired.RUNNING),
    Operation.SUSPEND: State(Status.RUNNING, Desired.STOPPED),
    Operation.DELETE: State(Status.DESTROYING, Desired.ABSENT),
}
"""The state that an accepted operation leads to, where it does not hold already."""

STEPS: Final = (
    "Preparing the workspace",
    "Opening the way out",
    "Starting the sandbox",
    "Waiting for the daemon",
)
"""Of a boot."""


class Journey(StrEnum):
    """What a reconciler does with an intern."""

    BOOT = "boot"
    SUSPEND = "suspend"
    DESTROY = "destroy"


JOURNEYS: Final[Mapping[State, Journey]] = {
    State(Status.QUEUED, Desired.RUNNING): Journey.BOOT,
    State(Status.PROVISIONING, Desired.RUNNING): Journey.BOOT,
    State(Status.RUNNING, Desired.STOPPED): Journey.SUSPEND,
    State(Status.DESTROYING, Desired.ABSENT): Journey.DESTROY,
}
"""Which states a reconciler leads somewhere else. One that runs it keeps running; in all others it
has nothing to do."""
RUNS: Final = State(Status.RUNNING, Desired.RUNNING)
FAILED: Final = State(Status.FAILED, Desired.IDLE)
STOPPED: Final = State(Status.STOPPED, Desired.IDLE)
DESTROY_FAILED: Final = State(Status.DESTROY_FAILED, Desired.IDLE)

QUEUED: Final = State(Status.QUEUED, Desired.RUNNING)
"""Where a boot is waited for, also that of an intern whose server has stopped."""
BEGUN: Final = State(Status.PROVISIONING, Desired.RUNNING)
"""Where a boot begins, also the one of a sandbox that has ended by itself."""

NEXT: Final[Mapping[State, frozenset[State]]] = {
    QUEUED: frozenset({BEGUN, FAILED}),
    BEGUN: frozenset({RUNS, QUEUED, FAILED}),
    RUNS: frozenset({BEGUN, QUEUED, FAILED}),
    State(Status.RUNNING, Desired.STOPPED): frozenset({STOPPED, FAILED}),
    State(Status.DESTROYING, Desired.ABSENT): frozenset({DESTROY_FAILED}),
}
"""Which states a reconciler writes over which; what is destroyed has no state any more."""


def situation(state: State) -> Situation:
    """Return what a state means to a caller."""
    return _SITUATIONS[state]


def refusal(operation: Operation, state: State) -> Refusal | None:
    """Return why an operation is refused in a state; None where it is accepted."""
    return REFUSALS[operation].get(situation(state))


def holds_already(operation: Operation, state: State) -> bool:
    """Tell whether an accepted operation changes nothing: it was asked for, or is done."""
    match operation:
        case Operation.SUSPEND:
            return situation(state) in {Situation.STOPPED, Situation.STOPPING}
        case Operation.DELETE:
            return situation(state) is Situation.DESTROYING
        case _:
            return False


def movable(operation: Operation) -> frozenset[State]:
    """Return the states that an operation changes."""
    return frozenset(
        state
        for state in STATES
        if refusal(operation, state) is None and not holds_already(operation, state)
    )


def before(target: State) -> frozenset[State]:
    """Return the states from which a reconciler leads to another."""
    return frozenset(state for state, following in NEXT.items() if target in following)


def progress(state: State, step: int | None) -> Progress | None:
    """Return the step of a boot as callers see it; None where none is under way."""
    if situation(state) is not Situation.STARTING or step is None:
        return None
    return Progress(STEPS[step - 1], step, len(STEPS))


def in_words(state: State, step: int | None, failure: str | None) -> str:
    """Return a state as one line of a log."""
    found = progress(state, step)
    if found is not None:
        return f"{state.status} ({found.number}/{found.total}: {found.label})"
    return str(state.status) if failure is None else f"{state.status}: {failure}"
