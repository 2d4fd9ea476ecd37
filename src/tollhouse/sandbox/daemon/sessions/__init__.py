"""Conversations with the intern's agent: runs, questions, and a log of all events.

    endpoints ──> runs ──> active_run ──> agent    a child process; see `sandbox.agent`
        │          │           │
        └──────────┴───────────┴────────> log      a SQLite file in the workspace (`log_file`)

    approvals    questions, answers, and what was allowed; the log does not count for these

Clients get what is in the log, and nothing else. It is the intern's own file: whatever runs in the
sandbox may change it. What cannot be read is set aside, and another log begun.
"""
