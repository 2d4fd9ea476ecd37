"""Why a command did not do what it was asked to."""

from __future__ import annotations

from typing import ClassVar


class CommandFailed(Exception):
    """The command was understood, and the server refused it or could not be reached.

    Its text is one line that says what is wrong and what to do. What is wrong before anything is
    asked (options, settings, the data folder) is a `StartError` instead.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        text: str,
        *,
        passes: bool = False,
        status: int | None = None,
        reason: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        """Say why.

        Args:
            text: One line.
            passes: Whether the same may work later: nobody answered, or who did was busy or broken.
            status: Of the reply, where one came.
            reason: The server's own word for it, where it has one.
            retry_after_seconds: When to come again, where the server said it.
        """
        super().__init__(text)
        self.passes = passes
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class BrokenOff(CommandFailed):
    """A reply began and never came to its end: what was asked for may have been done, or not."""
