"""The editor at the other end: it is shown what happens, and asked what the intern asks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from acp import (
    RequestError,
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)
from acp.schema import ElicitationFormSessionMode, ToolCallUpdate
from acp.schema import Usage as AcpUsage

from tollhouse.cli.interns.acp_forms import decided, filled_in, options_of, schema_of
from tollhouse.cli.interns.chat import Interrupted
from tollhouse.cli.interns.chat_questions import Permission, cancelled
from tollhouse.cli.interns.chat_stream import Closing, Reasoning, Text

if TYPE_CHECKING:
    from acp import Client
    from acp.schema import ToolCallStatus

    from tollhouse.cli.interns.chat_questions import Question
    from tollhouse.cli.interns.chat_stream import Event, Usage

_ALLOWED: Final = frozenset({"allow_once", "allow_always"})


class Editor:
    """Sees and answers one turn of a session."""

    def __init__(self, client: Client, session_id: str, *, has_forms: bool) -> None:
        """Take the way to it.

        Args:
            client: The connection.
            session_id: Its own name for the session.
            has_forms: Whether it shows forms.
        """
        self._client = client
        self._session_id = session_id
        self._has_forms = has_forms
        self._calls: dict[str, ToolCallStatus] = {}
        """Tool calls that were allowed or rejected, and how they will end."""
        self._usage: Usage | None = None

    async def show(self, event: Event) -> None:
        """Send an update."""
        match event:
            case Text(text):
                await self.say(text)
            case Reasoning(text):
                await self._client.session_update(self._session_id, update_agent_thought_text(text))
            case Closing(_, usage):
                self._usage = usage
            case _:
                pass

    async def say(self, text: str) -> None:
        """Send a piece of the answer."""
        await self._client.session_update(self._session_id, update_agent_message_text(text))

    async def answer(self, question: Question, complaint: str | None) -> str | None:
        """Ask it; None for a form that it cannot show.

        Raises:
            Interrupted: The client is gone.
        """
        if complaint is not None:
            return cancelled(question)
        try:
            return await self._asked(question)
        except (RequestError, ValueError):  # refused, or answered with something else
            return cancelled(question)
        except ConnectionError:
            raise Interrupted from None

    async def _asked(self, question: Question) -> str | None:
        asks = question.asks
        if isinstance(asks, Permission):
            return await self._permitted(question, asks)
        if not self._has_forms:
            return None
        mode = ElicitationFormSessionMode(
            session_id=self._session_id, requested_schema=schema_of(asks)
        )
        reply = await self._client.create_elicitation(asks.message, mode)
        return filled_in(question, asks, reply)

    async def end_calls(self) -> None:
        """Say of each tool call that was decided how it ended, as far as anybody knows."""
        with suppress(ConnectionError):  # the client is gone
            for call_id, status in self._calls.items():
                await self._client.session_update(
                    self._session_id, update_tool_call(call_id, status=status)
                )
        self._calls.clear()

    def usage(self) -> AcpUsage | None:
        """Return what the turn used."""
        used = self._usage
        if used is None:
            return None
        details = used.prompt_tokens_details
        return AcpUsage(
            input_tokens=used.prompt_tokens,
            output_tokens=used.completion_tokens,
            total_tokens=used.total_tokens,
            cached_read_tokens=None if details is None else details.cached_tokens,
        )

    async def _permitted(self, question: Question, permission: Permission) -> str:
        title = permission.operation or "Something that needs an approval"
        call_id = question.call_id
        await self._client.session_update(
            self._session_id, start_tool_call(call_id, title, kind="execute", status="pending")
        )
        self._calls[call_id] = "failed"
        response = await self._client.request_permission(
            self._session_id,
            ToolCallUpdate(tool_call_id=call_id, title=title, kind="execute", status="pending"),
            options_of(permission),
        )
        option = decided(permission, response)
        if option in _ALLOWED:
            self._calls[call_id] = "completed"
            await self._client.session_update(
                self._session_id, update_tool_call(call_id, status="in_progress")
            )
        return option
