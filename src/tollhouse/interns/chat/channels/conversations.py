"""Conversations of people in a chat service with one intern, whichever the service is.

prompt ──> runs? ──no──> offered to wake it; the prompt waits for that
             │ yes
             └──> a run, shown as it goes ──> its end | a question ──> answer ──> goes on
             └──> handed into the thread's run that works
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.interns import repository
from tollhouse.interns.chat.channels import ChannelFailed
from tollhouse.interns.chat.errors import INTERACTION_NOT_PENDING, INTERACTION_UNKNOWN, TIMED_OUT
from tollhouse.interns.chat.events import DaemonTextEvent, QuestionEvent, ToolStarted
from tollhouse.interns.chat.request import ChatAnswer, ChatPrompt
from tollhouse.interns.chat.service import SteeredChat
from tollhouse.interns.chat.transcript import fault_of_end, one_line
from tollhouse.interns.lifecycle import LifecyclePhase, phase_of
from tollhouse.interns.policy import InternBusy
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import TollhouseError
from tollhouse.sandbox.daemon.settings import MOST_INPUT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tollhouse.interns.chat.channels import ChannelFile, ChannelPrompt, Thread
    from tollhouse.interns.chat.events import DaemonEvent
    from tollhouse.interns.chat.request import ApprovalMode
    from tollhouse.interns.chat.service import ChatService
    from tollhouse.interns.types import Intern

LARGEST_FILE: Final = 20 * 1024 * 1024
"""Bytes of a file that is sent with a prompt."""
MOST_FILES: Final = 10
_MOST_WAITING: Final = 100
"""Prompts that wait until their intern is awake."""
_REMEMBERED: Final = timedelta(hours=26)
"""How long an event is known; Slack repeats one for an hour, or for a day where that is set.

Source: https://docs.slack.dev/apis/events-api, retries.
"""
_MOST_REMEMBERED: Final = 5_000
"""Events of one intern that are known."""
_LOOK_SECONDS: Final = 0.5
_WAKE_SECONDS: Final = 300.0
_CAN_WAKE: Final = frozenset((LifecyclePhase.STOPPED, LifecyclePhase.FAILED, LifecyclePhase.IDLE))
_TOO_LATE: Final = frozenset((INTERACTION_UNKNOWN.reason, INTERACTION_NOT_PENDING.reason))
_log = structlog.get_logger(__name__)


class Conversations:
    """Conversations with one intern."""

    def __init__(
        self,
        chats: ChatService,
        intern_id: str,
        *,
        mode: ApprovalMode,
        seconds: float,
        fetching: asyncio.Semaphore,
    ) -> None:
        """Take what it needs; a run may take so many seconds between two questions.

        `fetching` bounds how many files all interns fetch at once.
        """
        self._chats = chats
        self._interns = chats.interns
        self._intern_id = intern_id
        self._mode: ApprovalMode = mode
        self._seconds = seconds
        self._fetching = fetching
        self._waiting: dict[str, list[ChannelPrompt]] = {}

    async def is_new(self, event_id: str) -> bool:
        """Remember what the service has sent; false where it came before, to any server."""
        context = self._chats.context
        now = context.clock.now()
        async with context.database.writing() as write:
            if not await repository.claim_event(write, self._intern_id, event_id, now):
                return False
            before = now - _REMEMBERED
            await repository.forget_events(write, self._intern_id, before, _MOST_REMEMBERED)
        return True

    async def prompt(self, thread: Thread, prompt: ChannelPrompt) -> None:
        """Have the intern do something."""
        try:
            intern = await self._chats.begin_unattended(self._intern_id)
            text = await self._with_files(intern, thread, prompt)
        except InternBusy:
            await self._offer(thread, prompt)
            return
        except TollhouseError as error:
            await thread.say(error.message)
            return
        if text:
            await self._run(intern, thread, ChatPrompt(thread.session, text, self._mode))

    async def answer(
        self, thread: Thread, answer: tuple[str, str], taken: Callable[[], Awaitable[None]]
    ) -> str | None:
        """Answer a question, by its id, and go on with its run; return why that is not possible.

        `taken` is called once the intern has taken the answer.
        """
        interaction, content = answer
        try:
            intern = await self._chats.begin_unattended(self._intern_id)
        except TollhouseError as error:
            return error.message
        said = ChatAnswer(thread.session, interaction, content)
        return await self._run(intern, thread, said, taken)

    async def wake(self, thread: Thread) -> None:
        """Have the intern run again, and do what has waited for that."""
        try:
            await self._interns.wake(self._intern_id)
        except InternBusy:
            pass  # somebody was faster
        except TollhouseError as error:
            await thread.say(error.message)
            return
        intern = await self._awake()
        if phase_of(intern.state) is not LifecyclePhase.RUNNING:
            why = intern.last_failure_message or f"it is {intern.state.status}"
            await thread.say(f"It does not run: {one_line(why)}")
            return
        waiting = self._waiting.pop(thread.session, [])
        if not waiting:
            await thread.say("It runs again.")
        for each in waiting:
            await self.prompt(thread, each)

    async def _awake(self) -> Intern:
        """Wait until the intern runs, or does not get there."""
        notifications, loop = self._chats.context.notifications, asyncio.get_running_loop()
        ends = loop.time() + _WAKE_SECONDS
        with notifications.subscribe(self._intern_id) as heard:
            while True:
                intern = await self._interns.found(self._intern_id)
                if phase_of(intern.state) is not LifecyclePhase.STARTING or loop.time() > ends:
                    return intern
                await wait_for_event(heard, _LOOK_SECONDS)
                heard.clear()

    async def _offer(self, thread: Thread, prompt: ChannelPrompt) -> None:
        intern = await self._interns.found(self._intern_id)
        if phase_of(intern.state) not in _CAN_WAKE:
            await thread.say(f"It is {intern.state.status}: send this again in a moment.")
            return
        if sum(map(len, self._waiting.values())) >= _MOST_WAITING:
            await thread.say("Too many messages wait for it: wake it, and send this again.")
            return
        self._waiting.setdefault(thread.session, []).append(prompt)
        why = "" if intern.last_failure_message is None else one_line(intern.last_failure_message)
        await thread.offer_wake(f"It is {intern.state.status}. {why}".rstrip())

    async def _run(
        self,
        intern: Intern,
        thread: Thread,
        said: ChatPrompt | ChatAnswer,
        taken: Callable[[], Awaitable[None]] | None = None,
    ) -> str | None:
        """Follow a run up to its question or its end; return why an answer was not taken."""
        is_taken = False
        try:
            async with asyncio.timeout(self._seconds), self._chats.follow(intern, said) as followed:
                if isinstance(followed, SteeredChat):
                    await thread.say("It works on this already, and was told.")
                    return None
                is_taken = True
                if taken is not None:
                    await taken()
                last = await followed.run(partial(_show, thread))
        except TimeoutError:
            await thread.finish()
            await thread.say(TIMED_OUT.message)
            return None
        except TollhouseError as error:
            await thread.finish()
            if isinstance(said, ChatAnswer) and not is_taken:
                is_late = error.metadata.get("reason") in _TOO_LATE
                return INTERACTION_NOT_PENDING.message if is_late else error.message
            await thread.say(error.message)
            return None
        await thread.finish()
        if isinstance(last, QuestionEvent):
            await thread.ask(last)
        elif (fault := fault_of_end(last)) is not None:
            await thread.say(fault.message)
        return None

    async def _with_files(self, intern: Intern, thread: Thread, prompt: ChannelPrompt) -> str:
        """Put files into the workspace, and return the prompt with their names."""
        names: list[str] = []
        for file in prompt.files[:MOST_FILES]:
            try:
                async with self._fetching:
                    names.append(await self._put(intern, file))
            except ChannelFailed as error:
                await thread.say(f"{one_line(file.name)}: {error}")
        if left_out := ", ".join(file.name for file in prompt.files[MOST_FILES:]):
            await thread.say(one_line(f"At most {MOST_FILES} files a message; without {left_out}"))
        text = prompt.text
        if names:
            listed = "\n".join(f"- {name}" for name in names)
            text = f"{text}\n\nFiles that came with this, in the workspace:\n{listed}".lstrip()
        if len(text) > MOST_INPUT:
            await thread.say(f"A message has at most {MOST_INPUT} characters: send it as a file.")
            return ""
        return text

    async def _put(self, intern: Intern, file: ChannelFile) -> str:
        if file.size > LARGEST_FILE:
            raise ChannelFailed(f"a file has at most {LARGEST_FILE >> 20} MiB")
        name = f"received/{_file_name(file.id)}/{_file_name(file.name)}"
        await self._chats.put_file(intern, name, await file.read())
        return name


async def _show(thread: Thread, event: DaemonEvent) -> None:
    match event:
        case DaemonTextEvent(text=text):
            thread.write(text)
        case ToolStarted(title=title):
            thread.note(one_line(title))
        case _:
            return


def _file_name(name: str) -> str:
    """Return a file's name without what would lead elsewhere."""
    kept = "".join(each for each in name if each.isprintable() and each not in '/\\"')
    return kept.strip(". ")[-100:] or "file"
