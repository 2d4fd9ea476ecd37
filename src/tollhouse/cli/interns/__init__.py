"""What commands do with an intern: its terminals and files, and to talk to it.

    access      where the daemon is, and the token that it wants
    terminal    a shell of the intern on this terminal, or a script for one
    files       the intern's files, fetched, sent and listed
    chat        a conversation through the gateway: stream, questions, answers
    chat_talk   one for people and scripts
    acp         one for editors

`docs/reference/daemon-api.md` is the protocol of the first three; `chat_stream` reads the others'.
"""
