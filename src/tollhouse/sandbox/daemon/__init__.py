"""The program inside an intern's sandbox. It imports nothing of the gateway.

    main ──> settings      one line on standard input
      └────> server        uvicorn on a descriptor that was inherited
               └─ tokens ──> app ──┬─> terminal    shells, over WebSockets
                                   └─> files       the workspace
             processes     what was started here ends here
             forwarder     127.0.0.1 to the egress proxy's socket

What it needs of Python's packages is starlette, uvicorn, and what these need: httptools and
websockets. `docs/reference/daemon-api.md` is the protocol.
"""
