"""Conversations with the intern's agent: runs, questions, and a log of all events.

    endpoints ──> runs ──> working ──> agent      a child process; see `sandbox.agent`
        │          │          │
        │          └──────────┴─────> log         one SQLite file in the workspace
        └───────> streams <── feed ──────┘        what is in the log is sent, never else
    requests, questions   what clients say
    consents              what they were asked, and have allowed; the log is no witness
    pieces                text, put together to fewer events

The log is the intern's own file: whatever runs in the sandbox may change it. What cannot be read
is set aside, and another log begun.
"""
