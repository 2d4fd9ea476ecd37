"""What runs inside an intern's sandbox: the daemon, its agent, and the limits on system calls.

It imports nothing of the gateway: a sandbox is shown this folder alone.
"""
