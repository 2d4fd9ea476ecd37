"""Shells that outlive the connections to them.

endpoint ──> sessions ──> session ──> program    a pseudo-terminal or two pipes
└──────> replay      what it printed last, and how much in all
messages   what clients ask for and say
"""
