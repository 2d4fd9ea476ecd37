"""`tollhouse intern chat`: one prompt, or one after the other as a person types them."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.chat import (
    Conversation,
    Failed,
    Interrupted,
    Steered,
    failure_text,
)
from tollhouse.cli.interns.chat_asking import AtTerminal, Consenting, FromLines, Nobody
from tollhouse.cli.interns.chat_commands import HELP, Spent, command_in
from tollhouse.cli.interns.chat_lines import Lines, is_typed, whole_input
from tollhouse.cli.interns.chat_screen import JsonLines, Screen, Unread, usage_text
from tollhouse.cli.interns.chat_waiting import NOTICED_SECONDS, Waiting, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tollhouse.cli.interns.chat import Asker, Outcome, View

    Begin = Callable[[Waiting, bool], Conversation]
    """Opens a session: the one that was asked for, or a new one in any case."""

INTERRUPTED: Final = 130
_STEERED: Final = (
    "It is at work in this session: your message was handed into that run, and what comes of it is "
    "shown where that run was started."
)


@dataclass(frozen=True, slots=True)
class Manner:
    """How to talk."""

    name: str
    """The intern's, for people."""
    model: str = ""
    """The same."""
    manual: bool = False
    """Whether its tools ask first."""
    yes: bool = False
    """Whether everything is allowed once, without asking."""
    wait: bool = False
    """Whether to wait while it is at work for somebody else."""


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a conversation: who talks, who sees, who is asked."""

    conversation: Conversation
    manner: Manner
    view: View
    asker: Asker
    say: Callable[[str], None]
    """Shows people a line of ours."""

    async def take_turn(self, prompt: str) -> Outcome:
        """Send a prompt, and see to what follows.

        Raises:
            CommandFailed: It was refused, or the reply broke off.
            Interrupted: Ctrl-C at a question.
            Unread: Nobody reads the output any more.
        """
        asker = Consenting(self.asker, self.say) if self.manner.yes else self.asker
        return await self.conversation.prompt(
            prompt, manual=self.manner.manual, view=self.view, asker=asker
        )


async def talk(begin: Begin, manner: Manner, prompt: str | None, *, as_json: bool) -> int:
    """Talk to an intern: once, or for as long as somebody types prompts on a terminal.

    Args:
        begin: Opens the session.
        manner: How to talk.
        prompt: None for what is typed, or stands in standard input.
        as_json: Whether to write lines of JSON.

    Returns:
        0, or 130 where Ctrl-C ended it.

    Raises:
        CommandFailed: A single prompt was refused, or its run failed.
    """
    try:
        if as_json:
            return await _once_in_json(begin, manner, prompt)
        if prompt is None and is_typed():
            return await _converse(begin, manner)
        return await _once(begin, manner, prompt)
    except Interrupted:
        return INTERRUPTED
    except Unread:
        return 0


async def _once(begin: Begin, manner: Manner, prompt: str | None) -> int:
    screen, lines = Screen(), Lines()
    asker: Asker = Nobody(screen.say)
    if lines.is_terminal:
        asker = AtTerminal(lines, screen, manner.name)
    conversation = begin(_waiting(manner, screen.say), False)
    party = Party(conversation, manner, screen, asker, screen.say)
    try:
        outcome = await party.take_turn(whole_input() if prompt is None else prompt)
    finally:
        screen.end()
    if isinstance(outcome, Steered):
        screen.say(_STEERED)
    _sum_up(screen, conversation)
    return _required(outcome)


async def _once_in_json(begin: Begin, manner: Manner, prompt: str | None) -> int:
    output = JsonLines()
    asker: Asker = Nobody(silent) if prompt is None else FromLines(Lines(), output)
    conversation = begin(_waiting(manner, silent), False)
    party = Party(conversation, manner, output, asker, silent)
    try:
        text = whole_input() if prompt is None else prompt
        output.line("session", session_id=conversation.session_id)
        outcome = await party.take_turn(text)
        if isinstance(outcome, Steered):
            output.line("steered", session_id=conversation.session_id)
    except CommandFailed as refused:
        output.error(
            str(refused), code=refused.status, reason=refused.reason, retryable=refused.passes
        )
        raise
    return _required(outcome)


async def _converse(begin: Begin, manner: Manner) -> int:
    screen, lines = Screen(), Lines()
    # Who has stopped a run may go on at once.
    waiting = _waiting(manner, screen.say, NOTICED_SECONDS)
    asker = AtTerminal(lines, screen, manner.name)
    party = Party(begin(waiting, False), manner, screen, asker, screen.say)
    screen.say(
        f"Session {party.conversation.session_id}. Ctrl-C stops a turn, Ctrl-D leaves, /help tells "
        "more."
    )
    while (prompt := lines.read_text(f"{manner.name}> ")) is not None:
        match command_in(prompt):
            case None:
                if prompt.strip() and not await _stoppable(party, screen, lines, prompt):
                    return INTERRUPTED
            case "/exit":
                return 0
            case "/new":
                party = replace(party, conversation=begin(waiting, True))
                screen.say(f"Session {party.conversation.session_id}.")
            case command:
                screen.ask(_told(command, manner, screen.spent))
    return 0


def _told(command: str, manner: Manner, spent: Spent) -> str:
    match command:
        case "/help":
            return HELP
        case "/cost":
            return spent.text()
        case "/model":
            return manner.model
        case _:
            return f"There is no {command}, and nothing was sent.\n{HELP}"


def _waiting(manner: Manner, say: Callable[[str], None], limit_seconds: float = 0.0) -> Waiting:
    limit = inf if manner.wait else limit_seconds
    return Waiting(limit, say, "`--wait` waits until it is free.")


async def _stoppable(party: Party, screen: Screen, lines: Lines, prompt: str) -> bool:
    """Take a turn that Ctrl-C stops; tell whether to go on."""
    task = asyncio.ensure_future(party.take_turn(prompt))
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        lines.was_interrupted = True
        task.cancel()

    with _on_interrupt(pressed):
        try:
            outcome = await task
        except (asyncio.CancelledError, Interrupted):
            screen.end()
            await party.conversation.left()
            screen.say("Stopped.")
            return presses < 2  # noqa: PLR2004 - twice is: let me out
        except CommandFailed as refused:
            screen.ask(str(refused))
            return True
        finally:
            lines.was_interrupted = False
    screen.end()
    if isinstance(outcome, Failed):
        screen.ask(failure_text(outcome.failure))
    elif isinstance(outcome, Steered):
        screen.say(_STEERED)
    _sum_up(screen, party.conversation)
    return True


def _sum_up(screen: Screen, conversation: Conversation) -> None:
    used = "" if screen.usage is None else f"{usage_text(screen.usage)}; "
    screen.usage = None
    screen.say(f"[{used}session {conversation.session_id}]")


def _required(outcome: Outcome) -> int:
    if isinstance(outcome, Failed):
        failure = outcome.failure
        raise CommandFailed(failure_text(failure), passes=failure.retryable, reason=failure.reason)
    return 0


@contextmanager
def _on_interrupt(do: Callable[[], None]) -> Generator[None]:
    """Have Ctrl-C call something, for as long as the block runs."""
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: object) -> None:
        do()
        loop.call_soon_threadsafe(silent, "")  # the loop may be asleep

    # Not the loop's own way: that one is deaf while a line is read, which blocks the loop.
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
