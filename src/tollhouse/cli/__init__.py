"""The command `tollhouse`: it talks to a running server, or does the server's work itself."""
