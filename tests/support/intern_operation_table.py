"""Which operations an intern accepts in which state: the published table, for its tests."""

from __future__ import annotations

from tollhouse.interns.types import DesiredState, InternState, InternStatus, Operation

INTERN_STATES = (
    InternState(InternStatus.AWAITING_CHAT_INSTALL, DesiredState.IDLE),
    InternState(InternStatus.QUEUED, DesiredState.IDLE),
    InternState(InternStatus.QUEUED, DesiredState.RUNNING),
    InternState(InternStatus.PROVISIONING, DesiredState.RUNNING),
    InternState(InternStatus.RUNNING, DesiredState.RUNNING),
    InternState(InternStatus.RUNNING, DesiredState.STOPPED),
    InternState(InternStatus.FAILED, DesiredState.IDLE),
    InternState(InternStatus.STOPPED, DesiredState.IDLE),
    InternState(InternStatus.DESTROYING, DesiredState.ABSENT),
    InternState(InternStatus.DESTROY_FAILED, DesiredState.IDLE),
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
