"""A chat on this process's standard streams: input, what is shown, who answers questions.

    standard output    what the intern answers, and nothing else
    standard error     its reasoning, its questions, what a turn cost: for people only

Control characters are escaped on a terminal, and left as they are elsewhere. Questions go to one of

    TerminalPrompt    a person: the options by number, a form field by field
    StdinPrompt       a program: one line of standard input for each question
    DenyAll           nobody: forms are declined, permissions rejected
    AutoApprove       `--yes`: everything is allowed once; forms go to one of the others
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import msgspec

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.chat import QuestionHandler, UserInterrupted
from tollhouse.cli.interns.chat_stream import (
    CANCEL,
    AnswerNotAccepted,
    ChatEvent,
    ChatQuestion,
    ClosingEvent,
    FormQuestion,
    PermissionQuestion,
    ReasoningEvent,
    RunErrorEvent,
    TextEvent,
    TurnUsage,
)
from tollhouse.cli.output import write
from tollhouse.cli.values import credits_text, escape_controls, one_line
from tollhouse.sandbox.daemon.settings import MOST_INPUT

_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[22m"


def is_stdin_terminal() -> bool:
    """Tell whether standard input is a terminal. It may not be there at all."""
    return bool(sys.stdin) and sys.stdin.isatty()


class InputLines:
    """Standard input, line by line. Nothing else of this program runs meanwhile.

    CommandFailed where it is no UTF-8, UserInterrupted at Ctrl-C.
    """

    def __init__(self) -> None:
        self.is_terminal = is_stdin_terminal()
        self.was_interrupted = False
        """Set where Ctrl-C came before the wait for a line began: the next wait ends at once."""
        self._edits = self.is_terminal and sys.stdout.isatty()
        if self._edits:
            with suppress(ImportError):
                readline = import_module("readline")  # `input` uses it once it is there
                # What is pasted is one text, whatever lines it has; Python switches that off.
                readline.parse_and_bind("set enable-bracketed-paste on")

    def read(self, prompt: str) -> str | None:
        """Return the next line without its end, or None; the prompt is shown to people only."""
        with _from_input(self.is_terminal):
            if self.was_interrupted:
                raise KeyboardInterrupt
            return self._next(prompt)

    def read_text(self, prompt: str) -> str | None:
        r"""Return the next text: a line, or several where each but the last ends with `\`."""
        lines = list[str]()
        while (line := self.read("... " if lines else prompt)) is not None:
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line.removesuffix("\\"))
        return "\n".join(lines) if lines else None

    def _next(self, prompt: str) -> str | None:
        if self._edits:
            try:
                return input(prompt)
            except EOFError:
                print()
                return None
        if self.is_terminal:
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline() if sys.stdin else ""
        return line.removesuffix("\n") if line else None


def read_all_input() -> str:
    """Return all of standard input, or so much that it is longer than a prompt may be."""
    with _from_input(is_stdin_terminal()):
        return sys.stdin.read(MOST_INPUT + 2).removesuffix("\n") if sys.stdin else ""


@contextmanager
def _from_input(is_terminal: bool) -> Generator[None]:
    """Wait for input so that Ctrl-C ends the wait, and nothing else."""
    before = signal.getsignal(signal.SIGINT)
    try:
        # In the block: it may raise at once.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    except KeyboardInterrupt:
        if is_terminal:
            print(file=sys.stderr)
        raise UserInterrupted from None
    except UnicodeDecodeError:
        raise CommandFailed("standard input holds bytes that are no UTF-8 text") from None
    finally:
        signal.signal(signal.SIGINT, before)


class OutputClosed(Exception):
    """Nobody reads the output any more."""


@dataclass(slots=True)
class UsageTotals:
    """What a conversation has used."""

    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0

    def add(self, usage: TurnUsage) -> None:
        """Count a turn."""
        self.turns += 1
        self.tokens_in += usage.prompt_tokens
        self.tokens_out += usage.completion_tokens
        self.cost += usage.cost or 0.0

    def text(self) -> str:
        """Return it for people."""
        tokens = f"{self.tokens_in:,} tokens in, {self.tokens_out:,} out"
        return f"{self.turns} turns: {tokens}, ${credits_text(self.cost)}"


class ChatScreen:
    """Shows a conversation to a person."""

    def __init__(self) -> None:
        self._out = sys.stdout.isatty()
        self._err = sys.stderr.isatty()
        styled = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
        self._dim, self._plain = (_DIM, _PLAIN) if styled else ("", "")
        self._open_line = False
        """Whether the last line on standard output has no end yet."""
        self._open_aside = False
        """The same, of a line of reasoning on standard error."""
        self.usage: TurnUsage | None = None
        self.totals = UsageTotals()

    async def show(self, event: ChatEvent) -> None:
        """Show what happens at once."""
        match event:
            case TextEvent(text):
                self._end_aside()
                self._write(text)
            case ReasoningEvent(text):
                self._aside(text)
            case ClosingEvent(_, usage):
                self.usage = usage
                if usage is not None:
                    self.totals.add(usage)
            case ChatQuestion() | RunErrorEvent():
                self.end()

    def _aside(self, text: str) -> None:
        if not self._err or not text:
            return
        if self._out and self._open_line:
            self._write("\n")
        self._open_aside = not text.endswith("\n")
        self._say(f"{self._dim}{escape_controls(text)}{self._plain}", end="")

    def say(self, text: str) -> None:
        """Show people a line of ours."""
        if self._err:
            self.end()
            self._say(f"{self._dim}{escape_controls(text)}{self._plain}")

    def ask(self, text: str) -> None:
        """Show people what they have to decide; never dimmed."""
        self.end()
        self._say(escape_controls(text))

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
        if not write(escape_controls(text) if self._out else text, end=""):
            raise OutputClosed

    def _say(self, text: str, end: str = "\n") -> None:
        with suppress(OSError):
            print(text, end=end, file=sys.stderr, flush=True)


class JsonLinesView:
    """Writes a conversation as one JSON object a line."""

    async def show(self, event: ChatEvent) -> None:
        """Write what happens at once."""
        match event:
            case TextEvent(text):
                self.line("text", text=text)
            case ReasoningEvent(text):
                self.line("reasoning", text=text)
            case ChatQuestion():
                asks: dict[str, Any] = msgspec.to_builtins(event.asks)
                self.line("question", id=event.call_id, **asks)
            case RunErrorEvent(code, message, reason, retryable):
                limit = {"limit_source": event.limit_source, "remedy_hint": event.remedy_hint}
                told = {name: text for name, text in limit.items() if text is not None}
                self.error(message, code=code, reason=reason, retryable=retryable, **told)
            case ClosingEvent(session_id, usage):
                self.line("usage", session_id=session_id, usage=msgspec.to_builtins(usage))

    def say(self, text: str) -> None:
        """Keep a line of ours to itself: it is for people."""

    def line(self, kind: str, /, **fields: object) -> None:
        """Write a line; OutputClosed if nobody reads it."""
        if not write(json.dumps({"type": kind, **fields})):
            raise OutputClosed

    def error(
        self, message: str, *, code: int | None, reason: str | None, retryable: bool, **more: str
    ) -> None:
        """Write what went wrong."""
        told = {"code": code, "message": message, "reason": reason, "retryable": retryable}
        self.line("error", **told, **more)


def usage_text(usage: TurnUsage) -> str:
    """Return what a turn used, for people."""
    details = usage.prompt_tokens_details
    cached = f" ({details.cached_tokens:,} cached)" if details and details.cached_tokens else ""
    text = f"{usage.prompt_tokens:,} tokens in{cached}, {usage.completion_tokens:,} out"
    return text if usage.cost is None else f"{text}, ${credits_text(usage.cost)}"


@dataclass(frozen=True, slots=True)
class DenyAll:
    """Denies everything, and says so."""

    say: Callable[[str], None]

    async def answer(self, question: ChatQuestion, complaint: str | None) -> str | None:
        """Return the safe answer."""
        asks = question.asks
        content = asks.cancel() if complaint else asks.deny()
        what = asks.message if isinstance(asks, FormQuestion) else _operation(asks)
        self.say(f"Refused, since nobody is here to answer: {what}")
        return content


@dataclass(frozen=True, slots=True)
class AutoApprove:
    """Allows each operation once, and leaves forms to another handler."""

    other: QuestionHandler
    say: Callable[[str], None]

    async def answer(self, question: ChatQuestion, complaint: str | None) -> str | None:
        """Return the approval of a permission; of a form, what the other handler answers."""
        content = question.asks.approve()
        if content is None or complaint is not None:
            return await self.other.answer(question, complaint)
        if isinstance(question.asks, PermissionQuestion):
            self.say(f"Allowed once: {_operation(question.asks)}")
        return content


@dataclass(frozen=True, slots=True)
class TerminalPrompt:
    """Asks a person."""

    lines: InputLines
    screen: ChatScreen
    name: str
    """The intern's."""

    async def answer(self, question: ChatQuestion, complaint: str | None) -> str | None:
        """Return what was decided; the end of the input cancels."""
        if complaint is not None:
            self.screen.ask(complaint)
        asks = question.asks
        if isinstance(asks, PermissionQuestion):
            return self._option(asks)
        self.screen.ask(f"{self.name} asks: {_indented(asks.message)}")
        self.screen.ask("(a field that is not required may stay empty; Ctrl-D declines)")
        return self._form(asks)

    def _option(self, permission: PermissionQuestion) -> str:
        self.screen.ask(f"{self.name} asks: may I? {_indented(_operation(permission))}")
        words = [f"{n}) {o.replace('_', ' ')}" for n, o in enumerate(permission.options, 1)]
        self.screen.ask("  " + "   ".join([*words, "c) cancel"]))
        while (typed := self.lines.read("? ")) is not None:
            try:
                return permission.parse(typed)
            except AnswerNotAccepted as unfit:
                self.screen.ask(str(unfit))
        return CANCEL

    def _form(self, form: FormQuestion) -> str:
        values: dict[str, Any] = {}
        for field in form.fields:
            while True:
                typed = self.lines.read(f"{one_line(field.label)}: ")
                if typed is None:
                    return form.deny()
                try:
                    value = field.parse(typed)
                except AnswerNotAccepted as unfit:
                    self.screen.ask(str(unfit))
                    continue
                if value is not None:
                    values[field.name] = value
                break
        return form.submit(values)


@dataclass(frozen=True, slots=True)
class StdinPrompt:
    """Asks a program: it has read the question, and writes a line."""

    lines: InputLines
    output: JsonLinesView

    async def answer(self, question: ChatQuestion, complaint: str | None) -> str | None:
        """Return the option, JSON object, `decline` or `cancel` in a line; denied without one."""
        if complaint is not None:
            self._complain(complaint)
        while (typed := self.lines.read("")) is not None:
            try:
                return question.asks.parse(typed)
            except AnswerNotAccepted as unfit:
                self._complain(str(unfit))
        return question.asks.deny()

    def _complain(self, text: str) -> None:
        self.output.error(text, code=None, reason="unfit_answer", retryable=True)


def _operation(permission: PermissionQuestion) -> str:
    return permission.operation or "(it does not say what)"


def _indented(text: str) -> str:
    """Return a text whose further lines cannot be taken for ours."""
    return text.strip().replace("\n", "\n    | ")
