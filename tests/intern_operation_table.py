"""Which operations an intern accepts in which state: the published table, for its tests."""

from __future__ import annotations

from tollhouse.interns.types import Desired, Operation, State, Status

INTERN_STATES = (
    State(Status.AWAITING_CHAT_INSTALL, Desired.IDLE),
    State(Status.QUEUED, Desired.IDLE),
    State(Status.QUEUED, Desired.RUNNING),
    State(Status.PROVISIONING, Desired.RUNNING),
    State(Status.RUNNING, Desired.RUNNING),
    State(Status.RUNNING, Desired.STOPPED),
    State(Status.FAILED, Desired.IDLE),
    State(Status.STOPPED, Desired.IDLE),
    State(Status.DESTROYING, Desired.ABSENT),
    State(Status.DESTROY_FAILED, Desired.IDLE),
)
# "ok" is accepted, "no" is refused, "later" is refused as retryable.
ANSWERS = {
    Operation.PROVISION: "no    ok    later later no    later ok    ok    later no",
    Operation.SUSPEND: "no    no    later later ok    ok    no    ok    later no",
    Operation.DELETE: "ok    ok    later later ok    later ok    ok    ok    ok",
    Operation.PATCH: "ok    ok    ok    ok    ok    ok    ok    ok    no    ok",
    Operation.DAEMON: "no    no    no    no    ok    no    no    no    no    no",
    Operation.CHAT: "later later later later ok    later later later later later",
}
OPERATION_CASES = {
    f"{operation}-{state.status}-{state.desired}": (operation, state, answer)
    for operation, row in ANSWERS.items()
    for state, answer in zip(INTERN_STATES, row.split(), strict=True)
}
