"""What commands do with an intern: its terminals and files, and to chat with it.

`docs/reference/daemon-api.md` is the protocol of terminals and files, `chat_stream` the chat's.
"""
