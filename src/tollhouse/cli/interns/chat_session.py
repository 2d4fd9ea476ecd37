"""`tollhouse intern chat`: one prompt, or one after the other as a person types them."""

import asyncio
import re
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from tollhouse.cli.client import Server
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.chat import (
    HANG_UP_SECONDS,
    BusyRetry,
    InternChat,
    QuestionHandler,
    RunEnd,
    RunOutcome,
    UserInterrupted,
    discard,
    failure_text,
)
from tollhouse.cli.interns.chat_stream import RunErrorEvent
from tollhouse.cli.interns.chat_terminal import (
    AutoApprove,
    ChatScreen,
    DenyAll,
    InputLines,
    JsonLinesView,
    OutputClosed,
    StdinPrompt,
    TerminalPrompt,
    is_stdin_terminal,
    read_all_input,
    usage_text,
)
from tollhouse.cli.values import one_line
from tollhouse.kernel.ids import RandomIds

_COMMAND: Final = re.compile(r"/[a-z]+")
CHAT_HELP: Final = """\
/help   these lines
/new    begin another session
/cost   what this conversation has used so far
/model  the model that the intern runs with
/exit   leave, as Ctrl-D does
A line that ends with \\ goes on with the next; what is pasted is sent as one prompt. Ctrl-C stops a
turn. What looks like a command is never sent: put a space before it."""


def parse_command(text: str) -> str | None:
    """Return the command that a text is; None for a prompt, such as one that begins with a path."""
    return text.rstrip() if _COMMAND.fullmatch(text.rstrip()) else None


INTERRUPTED: Final = 130
_STEERED: Final = (
    "It is at work in this session: your message was handed into that run, and what comes of it is "
    "shown where that run was started."
)


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What the command line says about a chat, and with which intern."""

    server: Server
    intern: dict[str, Any]
    session: str | None = None
    """Which one to continue; None for a new one."""
    manual: bool = False
    """Whether its tools ask first."""
    yes: bool = False
    """Whether everything is allowed once, without asking."""
    wait: bool = False
    """Whether to wait while it is at work for another client."""

    @property
    def name(self) -> str:
        """The intern's, for people."""
        return one_line(self.intern["name"])

    def open(self, retry: BusyRetry, *, anew: bool = False) -> InternChat:
        """Open the session that was asked for, or a new one in any case."""
        session_id = None if anew else self.session
        return InternChat(self.server, self.intern, session_id or RandomIds().uuid(), retry)

    def retry(self, say: Callable[[str], None], limit_seconds: float = 0.0) -> BusyRetry:
        """Return how to wait for an intern that is busy; `say` shows people a line."""
        limit = inf if self.wait else limit_seconds
        return BusyRetry(limit, say, "`--wait` waits until it is free.")

    async def take_turn(
        self, chat: InternChat, prompt: str, view: ChatScreen | JsonLinesView, asks: QuestionHandler
    ) -> RunOutcome:
        """Send a prompt, and see to what follows; OutputClosed if nobody reads it any more."""
        handler = AutoApprove(asks, view.say) if self.yes else asks
        return await chat.prompt(prompt, manual=self.manual, view=view, handler=handler)


async def run_chat(options: ChatOptions, prompt: str | None, *, as_json: bool) -> int:
    """Talk to an intern: once, or for as long as somebody types prompts on a terminal.

    Without a prompt, it is what is typed or stands in standard input. Returns 0, or 130 where
    Ctrl-C ended it; CommandFailed where a single prompt was refused, or its run failed.
    """
    try:
        if as_json:
            return await _once_in_json(options, prompt)
        if prompt is None and is_stdin_terminal():
            return await _converse(options)
        return await _once(options, prompt)
    except UserInterrupted:
        return INTERRUPTED
    except OutputClosed:
        return 0


async def _once(options: ChatOptions, prompt: str | None) -> int:
    screen, lines = ChatScreen(), InputLines()
    chat = options.open(options.retry(screen.say))
    person = TerminalPrompt(lines, screen, options.name)
    handler = person if lines.is_terminal else DenyAll(screen.say)
    try:
        text = read_all_input() if prompt is None else prompt
        outcome = await options.take_turn(chat, text, screen, handler)
    finally:
        screen.end()
    _sum_up(screen, chat, outcome)
    return _require_success(outcome)


async def _once_in_json(options: ChatOptions, prompt: str | None) -> int:
    output = JsonLinesView()
    handler = DenyAll(output.say) if prompt is None else StdinPrompt(InputLines(), output)
    chat = options.open(options.retry(output.say))
    try:
        text = read_all_input() if prompt is None else prompt
        output.line("session", session_id=chat.session_id)
        outcome = await options.take_turn(chat, text, output, handler)
        if outcome is RunEnd.STEERED:
            output.line("steered", session_id=chat.session_id)
    except CommandFailed as refused:
        output.error(
            str(refused), code=refused.status, reason=refused.reason, retryable=refused.retryable
        )
        raise
    return _require_success(outcome)


async def _converse(options: ChatOptions) -> int:
    screen, lines = ChatScreen(), InputLines()
    # After a run was stopped, the next prompt is not refused as busy.
    retry = options.retry(screen.say, HANG_UP_SECONDS)
    person = TerminalPrompt(lines, screen, options.name)
    chat = options.open(retry)
    screen.say(f"Session {chat.session_id}. Ctrl-C stops a turn, Ctrl-D leaves, /help tells more.")
    while (prompt := lines.read_text(f"{options.name}> ")) is not None:
        command = parse_command(prompt)
        if command is None and prompt.strip():
            turn = options.take_turn(chat, prompt, screen, person)
            if not await _stoppable(turn, chat, screen, lines):
                return INTERRUPTED
        elif command == "/exit":
            return 0
        elif command == "/new":
            chat = options.open(retry, anew=True)
            screen.say(f"Session {chat.session_id}.")
        elif command is not None:
            model = one_line(options.intern.get("model") or "the workspace's default model")
            told = {"/help": CHAT_HELP, "/cost": screen.totals.text(), "/model": model}
            unknown = f"There is no {command}, and nothing was sent.\n{CHAT_HELP}"
            screen.ask(told.get(command, unknown))
    return 0


async def _stoppable(
    turn: Coroutine[None, None, RunOutcome], chat: InternChat, screen: ChatScreen, lines: InputLines
) -> bool:
    """Take a turn that Ctrl-C stops; tell whether to go on."""
    task = asyncio.ensure_future(turn)
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        lines.was_interrupted = True
        task.cancel()

    with _on_interrupt(pressed):
        try:
            outcome = await task
        except (asyncio.CancelledError, UserInterrupted):
            screen.end()
            await chat.wait_cancelled()
            screen.say("Stopped.")
            return presses <= 1  # whoever presses it twice wants to leave
        except CommandFailed as refused:
            screen.ask(str(refused))
            return True
        finally:
            lines.was_interrupted = False
    screen.end()
    if isinstance(outcome, RunErrorEvent):
        screen.ask(failure_text(outcome))
    _sum_up(screen, chat, outcome)
    return True


def _sum_up(screen: ChatScreen, chat: InternChat, outcome: RunOutcome) -> None:
    if outcome is RunEnd.STEERED:
        screen.say(_STEERED)
    used = "" if screen.usage is None else f"{usage_text(screen.usage)}; "
    screen.usage = None
    screen.say(f"[{used}session {chat.session_id}]")


def _require_success(outcome: RunOutcome) -> int:
    if isinstance(outcome, RunErrorEvent):
        raise CommandFailed(
            failure_text(outcome), retryable=outcome.retryable, reason=outcome.reason
        )
    return 0


@contextmanager
def _on_interrupt(do: Callable[[], None]) -> Generator[None]:
    """Have Ctrl-C call something, for as long as the block runs."""
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: object) -> None:
        do()
        loop.call_soon_threadsafe(discard, "")  # the loop may be asleep

    # Not the loop's own way: that one is deaf while a line is read, which blocks the loop.
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
