"""Talking to an intern: a prompt or an answer goes to its daemon, a stream of chunks comes back.

    request ──> ChatPrompt | ChatAnswer ──> daemon_client ──> events ──> transcript ──> the caller

`errors` has every way in which that ends badly; `service` decides who may, and finds the daemon.
The daemon is not trusted: the agent beside it may have taken it over.

Source: the public gateway's chat with interns; `docs/reference/daemon-api.md` for the daemon's
side.
"""
