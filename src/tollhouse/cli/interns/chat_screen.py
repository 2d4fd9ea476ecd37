"""A conversation as people see it, or as lines of JSON for programs.

    standard output    what the intern answers, and nothing else
    standard error     what it thinks and does, what it asks, what a turn cost: for people only

What it writes is made harmless on a terminal, and left as it is elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import msgspec

from tollhouse.cli.interns.chat_commands import Spent
from tollhouse.cli.interns.chat_stream import (
    Asked,
    Closing,
    Event,
    Failure,
    Reasoning,
    Text,
    Usage,
)
from tollhouse.cli.interns.chat_text import harmless
from tollhouse.cli.output import write
from tollhouse.cli.values import credits_text

_DIM = "\x1b[2m"
_PLAIN = "\x1b[22m"


class Unread(Exception):
    """Nobody reads the output any more."""


class Screen:
    """Shows a conversation to a person."""

    def __init__(self) -> None:
        """Take standard output and standard error."""
        self._out = sys.stdout.isatty()
        self._err = sys.stderr.isatty()
        styled = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
        self._dim, self._plain = (_DIM, _PLAIN) if styled else ("", "")
        self._open_line = False
        """Whether the last line on standard output has no end yet."""
        self._open_aside = False
        self.usage: Usage | None = None
        self.spent = Spent()

    async def show(self, event: Event) -> None:
        """Show what happens at once."""
        match event:
            case Text(text):
                self._end_aside()
                self._write(text)
            case Reasoning(text):
                self._aside(text)
            case Closing(_, usage):
                self.usage = usage
                if usage is not None:
                    self.spent.add(usage)
            case Asked() | Failure():
                self.end()

    def _aside(self, text: str) -> None:
        """Show people what is no answer."""
        if not self._err or not text:
            return
        if self._out and self._open_line:
            self._write("\n")
        self._open_aside = not text.endswith("\n")
        self._say(f"{self._dim}{harmless(text)}{self._plain}", end="")

    def say(self, text: str) -> None:
        """Show people a line of ours."""
        if self._err:
            self.end()
            self._say(f"{self._dim}{harmless(text)}{self._plain}")

    def ask(self, text: str) -> None:
        """Show people what they have to decide; never dimmed."""
        self.end()
        self._say(harmless(text))

    def end(self) -> None:
        """End the line that is not ended yet."""
        self._end_aside()
        if self._open_line:
            self._write("\n")

    def _end_aside(self) -> None:
        if self._open_aside:
            self._say("")
            self._open_aside = False

    def _write(self, text: str) -> None:
        self._open_line = not text.endswith("\n")
        if not write(harmless(text) if self._out else text, end=""):
            raise Unread

    def _say(self, text: str, end: str = "\n") -> None:
        with suppress(OSError):
            print(text, end=end, file=sys.stderr, flush=True)


class JsonLines:
    """Writes a conversation as one JSON object a line."""

    async def show(self, event: Event) -> None:
        """Write what happens at once."""
        match event:
            case Text(text):
                self.line("text", text=text)
            case Reasoning(text):
                self.line("reasoning", text=text)
            case Asked(question):
                asks: dict[str, Any] = msgspec.to_builtins(question.asks)
                self.line("question", id=question.call_id, **asks)
            case Failure(code, message, reason, retryable):
                self.error(message, code=code, reason=reason, retryable=retryable)
            case Closing(session_id, usage):
                self.line("usage", session_id=session_id, usage=msgspec.to_builtins(usage))

    def line(self, kind: str, /, **fields: object) -> None:
        """Write a line.

        Raises:
            Unread: Nobody reads it.
        """
        if not write(json.dumps({"type": kind, **fields})):
            raise Unread

    def error(self, message: str, *, code: int | None, reason: str | None, retryable: bool) -> None:
        """Write what went wrong."""
        self.line("error", code=code, message=message, reason=reason, retryable=retryable)


def usage_text(usage: Usage) -> str:
    """Return what a turn used, for people."""
    details = usage.prompt_tokens_details
    cached = f" ({details.cached_tokens:,} cached)" if details and details.cached_tokens else ""
    text = f"{usage.prompt_tokens:,} tokens in{cached}, {usage.completion_tokens:,} out"
    if usage.cost is None:
        return text
    return f"{text}, ${credits_text(usage.cost)}"
