"""Why a command did not do what it was asked to."""

from __future__ import annotations

from typing import ClassVar


class CommandFailed(Exception):
    """The command was understood, and the server refused it or could not be reached.

    Its text is one line that says what is wrong and what to do. What is wrong before anything is
    asked (options, settings, the data folder) is a `StartError` instead.
    """

    exit_code: ClassVar[int] = 1
