"""Which operations an intern accepts in which state: the published table, for its tests.

A state is what the intern is seen to be, and what it is to become.
"""

INTERN_STATES = (
    ("awaiting_chat_install", "idle"),
    ("queued", "idle"),
    ("queued", "running"),
    ("provisioning", "running"),
    ("running", "running"),
    ("running", "stopped"),
    ("failed", "idle"),
    ("stopped", "idle"),
    ("destroying", "absent"),
    ("destroy_failed", "idle"),
)
# "ok" is accepted, "no" is refused, "later" is refused as retryable.
ANSWERS = {
    "provision": "no    ok    later later no    later ok    ok    later no",
    "suspend": "no    no    later later ok    ok    no    ok    later no",
    "delete": "ok    ok    later later ok    later ok    ok    ok    ok",
    "patch": "ok    ok    ok    ok    ok    ok    ok    ok    no    ok",
    "daemon": "no    no    no    no    ok    no    no    no    no    no",
    "chat": "later later later later ok    later later later later later",
}
OPERATION_CASES = {
    f"{operation}-{'-'.join(state)}": (operation, state, answer)
    for operation, row in ANSWERS.items()
    for state, answer in zip(INTERN_STATES, row.split(), strict=True)
}
