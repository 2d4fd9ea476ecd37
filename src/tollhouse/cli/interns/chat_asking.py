"""Who answers what an intern asks.

AtTerminal    a person: the options by number, a form field by field
FromLines     a program: one line of standard input for each question
Nobody        nobody can be asked: what needs no consent goes on, the rest is rejected
Consenting    `--yes`: everything is allowed once, and somebody else is asked the rest
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.cli.interns.chat_questions import (
    CANCEL,
    Elicitation,
    Permission,
    Question,
    Unfit,
    accepted,
    cancelled,
    consented,
    declined,
    label_of,
    read_answer,
    read_field,
    read_option,
    refused,
)
from tollhouse.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.cli.interns.chat import Asker
    from tollhouse.cli.interns.chat_lines import Lines
    from tollhouse.cli.interns.chat_screen import JsonLines, Screen


class Nobody:
    """Refuses, and says so."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take what shows people a line."""
        self._say = say

    async def answer(self, question: Question, complaint: str | None) -> str | None:
        """Return the safe answer."""
        content = cancelled(question) if complaint else refused(question)
        asks = question.asks
        what = asks.message if isinstance(asks, Elicitation) else _operation(asks)
        self._say(f"Refused, since nobody is here to answer: {what}")
        return content


class Consenting:
    """Allows each thing once."""

    def __init__(self, other: Asker, say: Callable[[str], None]) -> None:
        """Take who answers what consent does not, and what shows people a line."""
        self._other = other
        self._say = say

    async def answer(self, question: Question, complaint: str | None) -> str | None:
        """Return consent where that is what is asked for."""
        content = consented(question)
        if content is None or complaint is not None:
            return await self._other.answer(question, complaint)
        if isinstance(question.asks, Permission):
            self._say(f"Allowed once: {_operation(question.asks)}")
        return content


class AtTerminal:
    """Asks a person."""

    def __init__(self, lines: Lines, screen: Screen, name: str) -> None:
        """Take where answers are typed, where questions are shown, and who asks."""
        self._lines = lines
        self._screen = screen
        self._name = name

    async def answer(self, question: Question, complaint: str | None) -> str | None:
        """Return what was decided; the end of the input cancels."""
        if complaint is not None:
            self._screen.ask(complaint)
        asks = question.asks
        if isinstance(asks, Permission):
            return self._option(asks)
        self._screen.ask(f"{self._name} asks: {_indented(asks.message)}")
        self._screen.ask("(a field that is not required may stay empty; Ctrl-D declines)")
        return self._form(asks)

    def _option(self, permission: Permission) -> str:
        self._screen.ask(f"{self._name} asks: may I? {_indented(_operation(permission))}")
        words = [f"{n}) {o.replace('_', ' ')}" for n, o in enumerate(permission.options, 1)]
        self._screen.ask("  " + "   ".join([*words, "c) cancel"]))
        while (typed := self._lines.read("? ")) is not None:
            try:
                return read_option(permission, typed)
            except Unfit as unfit:
                self._screen.ask(str(unfit))
        return CANCEL

    def _form(self, form: Elicitation) -> str:
        values: dict[str, Any] = {}
        for field in form.fields:
            while True:
                typed = self._lines.read(f"{one_line(label_of(field))}: ")
                if typed is None:
                    return declined()
                try:
                    value = read_field(field, typed)
                except Unfit as unfit:
                    self._screen.ask(str(unfit))
                    continue
                if value is not None:
                    values[field.name] = value
                break
        return accepted(values)


class FromLines:
    """Asks a program: it has read the question, and writes a line."""

    def __init__(self, lines: Lines, output: JsonLines) -> None:
        """Take where answers come from, and where complaints go."""
        self._lines = lines
        self._output = output

    async def answer(self, question: Question, complaint: str | None) -> str | None:
        """Return what a line says; without one it is refused.

        For a permission that is an option, for a form a JSON object, or `decline`, or `cancel`.
        """
        if complaint is not None:
            self._complain(complaint)
        while (typed := self._lines.read("")) is not None:
            try:
                return read_answer(question, typed)
            except Unfit as unfit:
                self._complain(str(unfit))
        return refused(question)

    def _complain(self, text: str) -> None:
        self._output.error(text, code=None, reason="unfit_answer", retryable=True)


def _operation(permission: Permission) -> str:
    return permission.operation or "(it does not say what)"


def _indented(text: str) -> str:
    """Return a text whose further lines cannot be taken for ours."""
    return text.strip().replace("\n", "\n    | ")
