"""What commands do with an intern's daemon: its terminals and its files.

    access      where the daemon is, and the token that it wants
    terminal    a shell of the intern on this terminal, or a script for one
    files       the intern's files, fetched, sent and listed

`docs/reference/daemon-api.md` is the protocol.
"""
