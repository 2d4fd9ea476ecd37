"""`tollhouse intern acp`: an intern for an editor, over standard input and output.

    initialize                 what it can do
    session/new, /resume       a session of the intern; nothing is asked of it so far
    session/set_mode           self-drive or manual, from the next prompt on
    session/prompt             a turn: session/update as it comes, questions as requests
    session/cancel             hangs up, which stops the run

Standard output carries the protocol and nothing else; messages for people and the library's log go
to standard error, which editors keep. The library calls the methods of `InternAgent`, and turns
`RequestError` into the error of a response.

Source: https://agentclientprotocol.com/protocol/v1
"""

import asyncio
import os
import signal
import stat
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Final, TextIO

from acp import PROTOCOL_VERSION, Client, RequestError, run_agent, schema, stdio_streams

from tollhouse import __version__
from tollhouse.cli.client import Server
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.acp_client import INVALID_PARAMS, EditorTurn, form_text, prompt_text
from tollhouse.cli.interns.chat import (
    HANG_UP_SECONDS,
    BusyRetry,
    ChatView,
    InternChat,
    RunEnd,
    RunOutcome,
    UserInterrupted,
    failure_text,
)
from tollhouse.cli.interns.chat_stream import (
    AnswerNotAccepted,
    ChatEvent,
    ChatQuestion,
    FormQuestion,
    RunErrorEvent,
)
from tollhouse.cli.interns.chat_terminal import is_stdin_terminal
from tollhouse.cli.references import find_intern
from tollhouse.kernel.ids import RandomIds

SELF_DRIVE: Final = "self-drive"
MANUAL: Final = "manual"
_MODES: Final = [
    schema.SessionMode(
        id=SELF_DRIVE, name="Self-drive", description="Does what it takes without asking."
    ),
    schema.SessionMode(id=MANUAL, name="Manual", description="Asks before what needs an approval."),
]
_FAILED: Final = -32603
_NOT_FOUND: Final = -32002
_AUTH_REQUIRED: Final = -32000
_UNAUTHORIZED: Final = 401
_STEERED: Final = (
    "It was still at work in this session: your message was handed into that run, whose output is "
    "not shown here."
)
_GONE: Final = frozenset({"interaction_not_pending", "interaction_unknown"})
_LARGEST_LINE: Final = 8 * 1024 * 1024
"""Bytes, far above a prompt of 32,000 characters; longer lines are read in parts."""


@dataclass(slots=True)
class _AcpSession:
    chat: InternChat
    mode: str
    open_question: ChatQuestion | None = None
    """One that was asked in words: the next prompt answers it."""
    turn: asyncio.Task[RunOutcome] | None = None
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class _AnsweredView:
    """Shows how a run goes on: its question is answered then, and not before."""

    session: _AcpSession
    view: ChatView

    async def show(self, event: ChatEvent) -> None:
        self.session.open_question = None
        await self.view.show(event)


class InternAgent:
    """Serves one client; sessions begin in the mode that asks if `manual`.

    The intern is looked up when a session begins, so that an editor can show why there is none.
    """

    def __init__(self, server: Server, name: str, *, manual: bool) -> None:
        self._server = server
        self._name = name
        self._mode = MANUAL if manual else SELF_DRIVE
        self._client: Client | None = None
        self._has_forms = False
        self._sessions: dict[str, _AcpSession] = {}

    def on_connect(self, conn: Client) -> None:
        """Take the way to the client."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 - there is one so far, and the client decides
        client_capabilities: schema.ClientCapabilities | None = None,
        **_: object,  # whatever later versions add
    ) -> schema.InitializeResponse:
        """Tell what an intern can do."""
        elicitation = None if client_capabilities is None else client_capabilities.elicitation
        self._has_forms = elicitation is not None and elicitation.form is not None
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=False,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True),
                session_capabilities=schema.SessionCapabilities(
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            agent_info=schema.Implementation(
                name="tollhouse-intern", title=self._name, version=__version__
            ),
            auth_methods=[],
        )

    async def new_session(self, **_: object) -> schema.NewSessionResponse:
        """Begin a session; the client's folder and tools are not the intern's."""
        session_id = RandomIds().uuid()
        session = await self._opened(session_id)
        return schema.NewSessionResponse(session_id=session_id, modes=_modes(session))

    async def resume_session(self, session_id: str, **_: object) -> schema.ResumeSessionResponse:
        """Go on with a session of earlier; what was said is not told again."""
        session = self._sessions.get(session_id) or await self._opened(session_id)
        return schema.ResumeSessionResponse(modes=_modes(session))

    async def close_session(self, session_id: str, **_: object) -> schema.CloseSessionResponse:
        """Stop what runs, and forget the session here; the intern keeps it."""
        await self.cancel(session_id)
        session = self._sessions.get(session_id)
        if session is not None and session.turn is not None:
            # It may have to cancel a run; `wait_cancelled` does not know a forgotten session.
            await asyncio.wait({session.turn})
        self._sessions.pop(session_id, None)
        return schema.CloseSessionResponse()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: object
    ) -> schema.SetSessionModeResponse:
        """Change the mode, from the next prompt on."""
        if mode_id not in {SELF_DRIVE, MANUAL}:
            raise RequestError(INVALID_PARAMS, f"there is no mode {mode_id}")
        self._session(session_id).mode = mode_id
        return schema.SetSessionModeResponse()

    async def cancel(self, session_id: str, **_: object) -> None:
        """Stop the run of a session, where there is one."""
        session = self._sessions.get(session_id)
        if session is not None and session.turn is not None:
            session.is_cancelled = True
            session.turn.cancel()

    async def prompt(
        self, session_id: str, prompt: Sequence[object], **_: object
    ) -> schema.PromptResponse:
        """Take a turn; RequestError if the prompt cannot be sent, is refused, or its run fails."""
        session = self._session(session_id)
        if session.turn is not None:
            raise RequestError(INVALID_PARAMS, "this session has a turn under way: cancel it first")
        text = prompt_text(prompt)
        editor = EditorTurn(self._connected(), session_id, has_forms=self._has_forms)
        session.is_cancelled = False
        session.turn = asyncio.ensure_future(self._take_turn(session, text, editor))
        try:
            outcome = await session.turn
        except (asyncio.CancelledError, UserInterrupted):
            if not session.is_cancelled:
                raise  # the client is gone
            return schema.PromptResponse(stop_reason="cancelled")
        except CommandFailed as failed:
            if session.is_cancelled:
                return schema.PromptResponse(stop_reason="cancelled")
            raise _error(failed) from None
        finally:
            session.turn = None
            await editor.end_calls()
        return await self._ended(session, outcome, editor)

    async def wait_cancelled(self) -> None:
        """Wait until the runs are stopped that were left at a question."""
        for session in self._sessions.values():
            await session.chat.wait_cancelled()

    async def _take_turn(self, session: _AcpSession, text: str, editor: EditorTurn) -> RunOutcome:
        chat, question = session.chat, session.open_question
        if question is not None and isinstance(question.asks, FormQuestion):
            try:
                content = question.asks.parse(text)
            except AnswerNotAccepted as unfit:
                await editor.say(str(unfit))
                return question
            view = _AnsweredView(session, editor)
            try:
                outcome = await chat.resume(question, content, view=view, handler=editor)
            except CommandFailed as refused:
                if refused.reason not in _GONE:
                    raise
                # It waited too long: what was typed is a prompt like any other.
                session.open_question = None
            else:
                session.open_question = None
                return outcome
        manual = session.mode == MANUAL
        return await chat.prompt(text, manual=manual, view=editor, handler=editor)

    async def _ended(
        self, session: _AcpSession, outcome: RunOutcome, editor: EditorTurn
    ) -> schema.PromptResponse:
        match outcome:
            case RunErrorEvent():
                about = {"reason": outcome.reason, "retryable": outcome.retryable}
                raise RequestError(_FAILED, failure_text(outcome), about)
            case ChatQuestion(asks=FormQuestion() as form):
                if session.open_question is None:
                    await editor.say(form_text(form))
                session.open_question = outcome
            case RunEnd.STEERED:
                await editor.say(_STEERED)
            case _:
                pass
        return schema.PromptResponse(stop_reason="end_turn", usage=editor.usage())

    async def _opened(self, session_id: str) -> _AcpSession:
        try:
            intern = await find_intern(self._server, self._name)
        except CommandFailed as failed:
            raise _error(failed) from None
        chat = InternChat(self._server, intern, session_id, BusyRetry(HANG_UP_SECONDS))
        session = self._sessions[session_id] = _AcpSession(chat, self._mode)
        return session

    def _session(self, session_id: str) -> _AcpSession:
        if session_id not in self._sessions:
            message = f"there is no session {session_id} here: resume it, or begin a new one"
            raise RequestError(_NOT_FOUND, message)
        return self._sessions[session_id]

    def _connected(self) -> Client:
        if self._client is None:
            raise RequestError(_FAILED, "there is no client")
        return self._client


def _modes(session: _AcpSession) -> schema.SessionModeState:
    return schema.SessionModeState(current_mode_id=session.mode, available_modes=_MODES)


def _error(failed: CommandFailed) -> RequestError:
    code = _AUTH_REQUIRED if failed.status == _UNAUTHORIZED else _FAILED
    return RequestError(code, str(failed), {"reason": failed.reason, "retryable": failed.retryable})


async def serve_acp(server: Server, name: str, *, manual: bool) -> None:
    """Serve the client at standard input and output, which have to be pipes, until it ends."""
    if is_stdin_terminal():
        print(
            "This is for editors, and speaks the Agent Client Protocol; `tollhouse intern chat` is "
            "for people.",
            file=sys.stderr,
        )
    if not (_is_stream(sys.stdin) and _is_stream(sys.stdout)):
        raise CommandFailed("standard input and output have to be pipes: an editor starts this")
    # The library closes what it wrote to; the command itself still has its standard output.
    with redirect_stdout(os.fdopen(os.dup(sys.stdout.fileno()), "w")):
        reader, writer = await stdio_streams(_LARGEST_LINE)
    # Who ends this program ends its input: runs are stopped, and nothing is cut.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reader.feed_eof)
    await serve_client(server, name, reader, writer, manual=manual)


async def serve_client(
    server: Server, name: str, reader: StreamReader, writer: StreamWriter, *, manual: bool
) -> None:
    """Serve one client until its input ends."""
    agent = InternAgent(server, name, manual=manual)
    try:
        # Of what is still marked as unstable there, session/resume and /close are in the protocol.
        await run_agent(
            agent,  # pyright: ignore[reportArgumentType] - what it has not is refused by the library
            input_stream=writer,
            output_stream=reader,
            use_unstable_protocol=True,
        )
    finally:
        await agent.wait_cancelled()


def _is_stream(file: TextIO | None) -> bool:
    """Tell whether the event loop can wait for a file; one that is closed is None."""
    if not file:
        return False
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()
