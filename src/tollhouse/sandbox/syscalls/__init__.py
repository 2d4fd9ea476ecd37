"""Filters of system calls: their instructions and the calls' numbers. Pure.

Runtimes limit a whole sandbox with one, and the agent, inside, a single command.
"""
