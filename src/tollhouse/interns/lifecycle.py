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

Source: the public gateway's intern life cycle; `TARGET_STATES` is what it leaves open.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.interns.types import BootProgress, DesiredState, InternState, InternStatus, Operation

if TYPE_CHECKING:
    from collections.abc import Mapping


class LifecyclePhase(StrEnum):
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


class OperationRefusal(NamedTuple):
    """Why an operation is not for now."""

    reason: str
    retryable: bool


_BUSY: Final = OperationRefusal("intern_busy", retryable=True)
"""Something is under way; it ends."""
_WRONG_STATE: Final = OperationRefusal("intern_busy", retryable=False)
"""Nothing is under way: asking again changes nothing."""
_UNLESS_RUNNING: Final = frozenset(LifecyclePhase) - {LifecyclePhase.RUNNING}
_NOT_RUNNING: Final = OperationRefusal("intern_not_running", retryable=False)
_NOT_READY: Final = OperationRefusal("intern_not_ready", retryable=True)

_PHASES: Final[Mapping[InternState, LifecyclePhase]] = {
    InternState(InternStatus.AWAITING_CHAT_INSTALL, DesiredState.IDLE): LifecyclePhase.AWAITING,
    InternState(InternStatus.QUEUED, DesiredState.IDLE): LifecyclePhase.IDLE,
    InternState(InternStatus.QUEUED, DesiredState.RUNNING): LifecyclePhase.STARTING,
    InternState(InternStatus.PROVISIONING, DesiredState.RUNNING): LifecyclePhase.STARTING,
    InternState(InternStatus.RUNNING, DesiredState.RUNNING): LifecyclePhase.RUNNING,
    InternState(InternStatus.RUNNING, DesiredState.STOPPED): LifecyclePhase.STOPPING,
    InternState(InternStatus.FAILED, DesiredState.IDLE): LifecyclePhase.FAILED,
    InternState(InternStatus.STOPPED, DesiredState.IDLE): LifecyclePhase.STOPPED,
    InternState(InternStatus.DESTROYING, DesiredState.ABSENT): LifecyclePhase.DESTROYING,
    InternState(InternStatus.DESTROY_FAILED, DesiredState.IDLE): LifecyclePhase.DESTROY_FAILED,
}
ALL_STATES: Final = frozenset(_PHASES)
"""Every state that there is."""

REFUSALS: Final[Mapping[Operation, Mapping[LifecyclePhase, OperationRefusal]]] = {
    Operation.PROVISION: {
        LifecyclePhase.AWAITING: _WRONG_STATE,
        LifecyclePhase.STARTING: _BUSY,
        LifecyclePhase.RUNNING: _WRONG_STATE,
        LifecyclePhase.STOPPING: _BUSY,
        LifecyclePhase.DESTROYING: _BUSY,
        LifecyclePhase.DESTROY_FAILED: _WRONG_STATE,
    },
    Operation.SUSPEND: {
        LifecyclePhase.AWAITING: _WRONG_STATE,
        LifecyclePhase.IDLE: _WRONG_STATE,
        LifecyclePhase.STARTING: _BUSY,
        LifecyclePhase.FAILED: _WRONG_STATE,
        LifecyclePhase.DESTROYING: _BUSY,
        LifecyclePhase.DESTROY_FAILED: _WRONG_STATE,
    },
    Operation.DELETE: {LifecyclePhase.STARTING: _BUSY, LifecyclePhase.STOPPING: _BUSY},
    Operation.PATCH: {LifecyclePhase.DESTROYING: _WRONG_STATE},
    Operation.DAEMON: dict.fromkeys(_UNLESS_RUNNING, _NOT_RUNNING),
    Operation.CHAT: dict.fromkeys(_UNLESS_RUNNING, _NOT_READY),
}
"""What is refused; everything else is accepted."""

TARGET_STATES: Final[Mapping[Operation, InternState]] = {
    Operation.PROVISION: InternState(InternStatus.QUEUED, DesiredState.RUNNING),
    Operation.SUSPEND: InternState(InternStatus.RUNNING, DesiredState.STOPPED),
    Operation.DELETE: InternState(InternStatus.DESTROYING, DesiredState.ABSENT),
}
"""The state that an accepted operation leads to, where it does not hold already."""

BOOT_STEPS: Final = (
    "Preparing the workspace",
    "Opening the way out",
    "Starting the sandbox",
    "Waiting for the daemon",
)


class ReconcilerAction(StrEnum):
    """What a reconciler does with an intern."""

    BOOT = "boot"
    SUSPEND = "suspend"
    DESTROY = "destroy"


ACTIONS: Final[Mapping[InternState, ReconcilerAction]] = {
    InternState(InternStatus.QUEUED, DesiredState.RUNNING): ReconcilerAction.BOOT,
    InternState(InternStatus.PROVISIONING, DesiredState.RUNNING): ReconcilerAction.BOOT,
    InternState(InternStatus.RUNNING, DesiredState.STOPPED): ReconcilerAction.SUSPEND,
    InternState(InternStatus.DESTROYING, DesiredState.ABSENT): ReconcilerAction.DESTROY,
}
"""Which states a reconciler leads somewhere else. One that runs it keeps running; in all others it
has nothing to do."""
RUNNING: Final = InternState(InternStatus.RUNNING, DesiredState.RUNNING)
FAILED: Final = InternState(InternStatus.FAILED, DesiredState.IDLE)
STOPPED: Final = InternState(InternStatus.STOPPED, DesiredState.IDLE)
DESTROY_FAILED: Final = InternState(InternStatus.DESTROY_FAILED, DesiredState.IDLE)

QUEUED: Final = InternState(InternStatus.QUEUED, DesiredState.RUNNING)
"""Where a boot is waited for, also that of an intern whose server has stopped."""
BOOTING: Final = InternState(InternStatus.PROVISIONING, DesiredState.RUNNING)
"""Where a boot begins, also the one of a sandbox that has ended by itself."""

NEXT_STATES: Final[Mapping[InternState, frozenset[InternState]]] = {
    QUEUED: frozenset({BOOTING, FAILED}),
    BOOTING: frozenset({RUNNING, QUEUED, FAILED}),
    RUNNING: frozenset({BOOTING, QUEUED, FAILED}),
    InternState(InternStatus.RUNNING, DesiredState.STOPPED): frozenset({STOPPED, FAILED}),
    InternState(InternStatus.DESTROYING, DesiredState.ABSENT): frozenset({DESTROY_FAILED}),
}
"""Which states a reconciler writes over which; what is destroyed has no state any more."""


def phase_of(state: InternState) -> LifecyclePhase:
    """Return what a state means to a caller."""
    return _PHASES[state]


def refusal(operation: Operation, state: InternState) -> OperationRefusal | None:
    """Return why an operation is refused in a state; None where it is accepted."""
    return REFUSALS[operation].get(phase_of(state))


def has_no_effect(operation: Operation, state: InternState) -> bool:
    """Tell whether an accepted operation changes nothing: it was asked for, or is done."""
    match operation:
        case Operation.SUSPEND:
            return phase_of(state) in {LifecyclePhase.STOPPED, LifecyclePhase.STOPPING}
        case Operation.DELETE:
            return phase_of(state) is LifecyclePhase.DESTROYING
        case _:
            return False


def states_changed_by(operation: Operation) -> frozenset[InternState]:
    """Return the states that an operation changes."""
    return frozenset(
        state
        for state in ALL_STATES
        if refusal(operation, state) is None and not has_no_effect(operation, state)
    )


def states_before(target: InternState) -> frozenset[InternState]:
    """Return the states from which a reconciler leads to another."""
    return frozenset(state for state, following in NEXT_STATES.items() if target in following)


def progress(state: InternState, step: int | None) -> BootProgress | None:
    """Return the step of a boot as callers see it; None where none is under way."""
    if phase_of(state) is not LifecyclePhase.STARTING or step is None:
        return None
    return BootProgress(BOOT_STEPS[step - 1], step, len(BOOT_STEPS))


def describe(state: InternState, step: int | None, failure: str | None) -> str:
    """Return a state as one line of a log."""
    found = progress(state, step)
    if found is not None:
        return f"{state.status} ({found.number}/{found.total}: {found.label})"
    return str(state.status) if failure is None else f"{state.status}: {failure}"
