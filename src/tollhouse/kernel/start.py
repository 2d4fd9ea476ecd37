"""Why the program cannot start.

Apart from `kernel.errors`, whose tree is for callers of the API: a `StartError` is for the person
in front of the terminal, before there is anything that could be called.
"""

from __future__ import annotations

from typing import ClassVar


class StartError(Exception):
    """The program cannot start.

    Its text says what is wrong and what to do, in one line (one line each where several things
    are wrong), and never holds a secret. The command prints it on standard error, without a
    trace, and ends with `exit_code`.
    """

    exit_code: ClassVar[int] = 2
