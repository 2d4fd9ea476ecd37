"""The daemon's process: `python -P -m tollhouse.sandbox.daemon`.

standard input    one line of JSON (`settings`); then nothing, and its end is the daemon's
standard error    the daemon's log
exit code         0 once it was told to end; 1 where it cannot serve; 2 for wrong settings
"""

from __future__ import annotations

import asyncio
import os
import sys

from tollhouse.sandbox.daemon.log import begin_log
from tollhouse.sandbox.daemon.server import serve
from tollhouse.sandbox.daemon.settings import LONGEST_LINE, BadSettings, read_settings


def main() -> int:
    """Serve until the end; return the exit code."""
    begin_log()
    stdin = _own_stdin()
    try:
        settings = read_settings(_read_line(stdin))
    except BadSettings as error:
        sys.stderr.write(f"tollhouse daemon: {error}\n")
        return 2
    try:
        asyncio.run(serve(settings, stdin))
    except OSError as error:
        sys.stderr.write(f"tollhouse daemon: cannot serve: {error}\n")
        return 1
    return 0


def _own_stdin() -> int:
    """Return a descriptor of standard input that no program inherits; leave an empty one there."""
    stdin = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    return stdin


def _read_line(stdin: int) -> bytes:
    line = bytearray()
    while b"\n" not in line:
        piece = os.read(stdin, 65_536)
        if not piece:
            raise BadSettings("standard input ended before the settings did")
        line += piece
        if len(line) > LONGEST_LINE:
            raise BadSettings(f"the settings are longer than {LONGEST_LINE} bytes")
    return bytes(line).partition(b"\n")[0]
