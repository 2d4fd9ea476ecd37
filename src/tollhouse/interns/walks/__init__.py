"""Walks through a workspace, each in a process of its own.

    walker.py    the server's side: starts one, hears it, kills it
    child.py     the other side: an order comes in, frames go out
    digest.py, pack.py, measure.py    the programs

A workspace is as large as a stranger has made it. A thread that reads it cannot be ended; a process
can, at a deadline or when nobody waits any more, and its memory has a bound.
"""
