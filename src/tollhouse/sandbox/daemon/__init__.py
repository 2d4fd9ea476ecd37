"""The program inside an intern's sandbox. It imports nothing of the gateway.

    __main__ ──> settings     one line on standard input
      └────────> app ──┬──> terminals   shells, over WebSockets; each a `terminal`
               (token) ├──> files       the workspace, by `workspace_tree` never left
                       └──> sessions    conversations with the agent
                 processes    programs that the daemon starts, and ends with itself
                 forwarder    127.0.0.1 to the egress proxy's socket
                 http         errors, and values in paths and queries

What it needs of Python's packages is starlette, uvicorn, and what these need: httptools and
websockets. `docs/reference/daemon-api.md` is the protocol.
"""
