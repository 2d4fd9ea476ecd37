"""An intern as an agent of the Agent Client Protocol.

    initialize                 what it can do
    session/new, /resume       a session of the intern; nothing is asked of it so far
    session/set_mode           self-drive or manual, from the next prompt on
    session/prompt             a turn: session/update as it comes, questions as requests
    session/cancel             hangs up, which stops the run

The library calls these methods, and turns `RequestError` into the error of a response.

Source: https://agentclientprotocol.com/protocol/v1
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acp import PROTOCOL_VERSION, RequestError
from acp.schema import (
    AgentCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionModeResponse,
)

from tollhouse import __version__
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.acp_client import Editor
from tollhouse.cli.interns.acp_forms import asked_in_words
from tollhouse.cli.interns.acp_prompt import Unspeakable, text_of_prompt
from tollhouse.cli.interns.chat import (
    Conversation,
    Failed,
    Interrupted,
    Paused,
    Steered,
    failure_text,
)
from tollhouse.cli.interns.chat_questions import Elicitation, Question, Unfit, read_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from acp import Client
    from acp.schema import ClientCapabilities

    from tollhouse.cli.interns.chat import Outcome, View
    from tollhouse.cli.interns.chat_stream import Event
    from tollhouse.kernel.ids import IdSource

    Open = Callable[[str], Awaitable[Conversation]]
    """Opens a session of the intern by its id."""

SELF_DRIVE: Final = "self-drive"
MANUAL: Final = "manual"
_MODES: Final = [
    SessionMode(id=SELF_DRIVE, name="Self-drive", description="Does what it takes without asking."),
    SessionMode(id=MANUAL, name="Manual", description="Asks before what needs an approval."),
]
_FAILED: Final = -32603
_INVALID: Final = -32602
_NOT_FOUND: Final = -32002
_AUTH_REQUIRED: Final = -32000
_UNAUTHORIZED: Final = 401
_STEERED: Final = (
    "It was still at work in this session: your message was handed into that run, whose output is "
    "not shown here."
)
_GONE: Final = frozenset({"interaction_not_pending", "interaction_unknown"})


@dataclass(slots=True)
class _Session:
    conversation: Conversation
    mode: str
    open_question: Question | None = None
    """One that was asked in words: the next prompt answers it."""
    turn: asyncio.Task[Outcome] | None = None
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class _Answered:
    """Shows how a run goes on: its question is answered then, and not before."""

    session: _Session
    view: View

    async def show(self, event: Event) -> None:
        self.session.open_question = None
        await self.view.show(event)


class InternAgent:
    """Serves one client."""

    def __init__(self, open_session: Open, name: str, ids: IdSource, *, manual: bool) -> None:
        """Take what opens a session, and the intern's name.

        Args:
            open_session: Asks the gateway for the intern, and may raise `CommandFailed`.
            name: For people.
            ids: Names new sessions.
            manual: Whether a session begins in the mode that asks.
        """
        self._open = open_session
        self._name = name
        self._ids = ids
        self._mode = MANUAL if manual else SELF_DRIVE
        self._client: Client | None = None
        self._has_forms = False
        self._sessions: dict[str, _Session] = {}

    def on_connect(self, conn: Client) -> None:
        """Take the way to the client."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 - there is one so far, and the client decides
        client_capabilities: ClientCapabilities | None = None,
        **_: Any,  # noqa: ANN401 - whatever later versions add
    ) -> InitializeResponse:
        """Tell what an intern can do."""
        elicitation = None if client_capabilities is None else client_capabilities.elicitation
        self._has_forms = elicitation is not None and elicitation.form is not None
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=False,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                session_capabilities=SessionCapabilities(
                    resume=SessionResumeCapabilities(), close=SessionCloseCapabilities()
                ),
            ),
            agent_info=Implementation(
                name="tollhouse-intern", title=self._name, version=__version__
            ),
            auth_methods=[],
        )

    async def new_session(self, **_: Any) -> NewSessionResponse:  # noqa: ANN401 - as above
        """Begin a session; the client's folder and tools are not the intern's."""
        session_id = self._ids.uuid()
        session = await self._opened(session_id)
        return NewSessionResponse(session_id=session_id, modes=_modes(session))

    async def resume_session(self, session_id: str, **_: Any) -> ResumeSessionResponse:  # noqa: ANN401
        """Go on with a session of earlier; what was said is not told again."""
        session = self._sessions.get(session_id) or await self._opened(session_id)
        return ResumeSessionResponse(modes=_modes(session))

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:  # noqa: ANN401
        """Stop what runs, and forget the session here; the intern keeps it."""
        await self.cancel(session_id)
        session = self._sessions.get(session_id)
        if session is not None and session.turn is not None:
            # It may have to tell a run that waits; `left` knows nothing of a forgotten session.
            await asyncio.wait({session.turn})
        self._sessions.pop(session_id, None)
        return CloseSessionResponse()

    async def set_session_mode(
        self,
        session_id: str,
        mode_id: str,
        **_: Any,  # noqa: ANN401 - as above
    ) -> SetSessionModeResponse:
        """Change the mode, from the next prompt on."""
        if mode_id not in {SELF_DRIVE, MANUAL}:
            raise RequestError(_INVALID, f"there is no mode {mode_id}")
        self._session(session_id).mode = mode_id
        return SetSessionModeResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:  # noqa: ANN401 - as above
        """Stop the run of a session, where there is one."""
        session = self._sessions.get(session_id)
        if session is not None and session.turn is not None:
            session.is_cancelled = True
            session.turn.cancel()

    async def prompt(
        self,
        session_id: str,
        prompt: Sequence[object],
        **_: Any,  # noqa: ANN401 - as above
    ) -> PromptResponse:
        """Take a turn.

        Raises:
            RequestError: The gateway refused, the run failed, or the prompt cannot be sent.
        """
        session = self._session(session_id)
        if session.turn is not None:
            raise RequestError(_INVALID, "this session has a turn under way: cancel it first")
        text = _spoken(prompt)
        editor = Editor(self._connected(), session_id, has_forms=self._has_forms)
        session.is_cancelled = False
        session.turn = asyncio.ensure_future(self._take_turn(session, text, editor))
        try:
            outcome = await session.turn
        except (asyncio.CancelledError, Interrupted):
            if not session.is_cancelled:
                raise  # the client is gone
            return PromptResponse(stop_reason="cancelled")
        except CommandFailed as failed:
            if session.is_cancelled:
                return PromptResponse(stop_reason="cancelled")
            raise _error(failed) from None
        finally:
            session.turn = None
            await editor.end_calls()
        return await self._ended(session, outcome, editor)

    async def left(self) -> None:
        """Wait until the runs are stopped that were left at a question."""
        for session in self._sessions.values():
            await session.conversation.left()

    async def _take_turn(self, session: _Session, text: str, editor: Editor) -> Outcome:
        conversation, question = session.conversation, session.open_question
        if question is not None and isinstance(question.asks, Elicitation):
            try:
                content = read_answer(question, text)
            except Unfit as unfit:
                await editor.say(str(unfit))
                return Paused(question)
            view = _Answered(session, editor)
            try:
                outcome = await conversation.resume(question, content, view=view, asker=editor)
            except CommandFailed as refused:
                if refused.reason not in _GONE:
                    raise
                # It waited too long: what was typed is a prompt like any other.
                session.open_question = None
            else:
                session.open_question = None
                return outcome
        manual = session.mode == MANUAL
        return await conversation.prompt(text, manual=manual, view=editor, asker=editor)

    async def _ended(self, session: _Session, outcome: Outcome, editor: Editor) -> PromptResponse:
        match outcome:
            case Failed(failure):
                about = {"reason": failure.reason, "retryable": failure.retryable}
                raise RequestError(_FAILED, failure_text(failure), about)
            case Paused(question) if isinstance(question.asks, Elicitation):
                if session.open_question is None:
                    await editor.say(asked_in_words(question.asks))
                session.open_question = question
            case Steered():
                await editor.say(_STEERED)
            case _:
                pass
        return PromptResponse(stop_reason="end_turn", usage=editor.usage())

    async def _opened(self, session_id: str) -> _Session:
        try:
            session = _Session(await self._open(session_id), self._mode)
        except CommandFailed as failed:
            raise _error(failed) from None
        self._sessions[session_id] = session
        return session

    def _session(self, session_id: str) -> _Session:
        if session_id not in self._sessions:
            message = f"there is no session {session_id} here: resume it, or begin a new one"
            raise RequestError(_NOT_FOUND, message)
        return self._sessions[session_id]

    def _connected(self) -> Client:
        if self._client is None:
            raise RequestError(_FAILED, "there is no client")
        return self._client


def _modes(session: _Session) -> SessionModeState:
    return SessionModeState(current_mode_id=session.mode, available_modes=_MODES)


def _spoken(prompt: Sequence[object]) -> str:
    try:
        return text_of_prompt(prompt)
    except Unspeakable as unspeakable:
        raise RequestError(_INVALID, str(unspeakable)) from None


def _error(failed: CommandFailed) -> RequestError:
    code = _AUTH_REQUIRED if failed.status == _UNAUTHORIZED else _FAILED
    return RequestError(code, str(failed), {"reason": failed.reason, "retryable": failed.passes})
