"""The editor's side of the Agent Client Protocol: its prompts, and the questions it is asked.

    permission     session/request_permission: the options, one to one
    form           elicitation/create; where the client has no forms, a text that asks

Source: https://agentclientprotocol.com/protocol/v1, "Content", "Requesting Permission" and
"Elicitation".
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, cast

import acp
from acp import schema

from tollhouse.cli.interns import chat_stream
from tollhouse.cli.interns.chat import UserInterrupted

_OPTIONS: Final = {
    kind: schema.PermissionOption(
        option_id=kind, name=name, kind=cast("schema.PermissionOptionKind", kind)
    )
    for kind, name in (
        ("allow_once", "Allow once"),
        ("allow_always", "Always allow"),
        ("reject_once", "Reject"),
        ("reject_always", "Always reject"),
    )
}
"""The protocol's kinds are called as the wire's options are."""
INVALID_PARAMS: Final = -32602
_ALLOWED: Final = frozenset({"allow_once", "allow_always"})


def prompt_text(blocks: Sequence[object]) -> str:
    """Return the blocks of a prompt as one text; RequestError if one of them is none.

    A file that an editor attaches is in the text as a whole: the intern has no access to the
    editor's machine. A link to one is its address and nothing more.
    """
    parts: list[str] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                parts.append(block.text)
            case schema.ResourceContentBlock():
                parts.append(f"[{block.name}]({block.uri})")
            case schema.EmbeddedResourceContentBlock(
                resource=schema.TextResourceContents() as resource
            ):
                parts.append(f'\n<file uri="{resource.uri}">\n{resource.text}\n</file>\n')
            case _:
                raise acp.RequestError(
                    INVALID_PARAMS, "an intern reads text alone: no pictures, sounds or other files"
                )
    return "".join(parts)


def _form_answer(form: chat_stream.FormQuestion, response: object) -> str:
    if isinstance(response, schema.DeclineElicitationResponse):
        return form.deny()
    if not isinstance(response, schema.AcceptElicitationResponse):
        return form.cancel()
    try:
        return form.submit(_values(form, response.content or {}))
    except chat_stream.AnswerNotAccepted:
        return form.cancel()


def form_text(form: chat_stream.FormQuestion) -> str:
    """Return a form as a text; the next prompt answers it."""
    lines = [form.message, ""]
    lines += [f"- {field.label}" for field in form.fields]
    many = len(form.fields) > 1
    lines += ["", f"Answer with {'a line `name: value` for each' if many else 'the value'}, or "]
    lines[-1] += "`decline`. It waits for some minutes."
    return "\n".join(lines)


def _values(form: chat_stream.FormQuestion, content: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in form.fields:
        given = content.get(field.name)
        if isinstance(given, str) or given is None:
            # A client's choices are texts, also where the intern's options are numbers.
            given = field.parse(given or "")
        if given is not None:
            values[field.name] = given
    return values


def _property(field: chat_stream.FormField) -> Any:  # noqa: ANN401 - one of the five below
    kind = field.type.lower()
    options = [str(option) for option in field.options or []]
    if kind in chat_stream.LIST and options:
        items = schema.StringMultiSelectItems(type="string", enum=options)
        return schema.ElicitationMultiSelectPropertySchema(
            type="array", title=field.name, items=items
        )
    if options:
        return schema.ElicitationStringPropertySchema(type="string", title=field.name, enum=options)
    if kind in chat_stream.INTEGER:
        return schema.ElicitationIntegerPropertySchema(type="integer", title=field.name)
    if kind in chat_stream.NUMBER:
        return schema.ElicitationNumberPropertySchema(type="number", title=field.name)
    if kind in chat_stream.BOOLEAN:
        return schema.ElicitationBooleanPropertySchema(type="boolean", title=field.name)
    return schema.ElicitationStringPropertySchema(type="string", title=field.name)


class EditorTurn:
    """Shows an editor one turn of a session, and asks it what the intern asks."""

    def __init__(self, client: acp.Client, session_id: str, *, has_forms: bool) -> None:
        self._client = client
        self._session_id = session_id
        self._has_forms = has_forms
        self._calls: dict[str, schema.ToolCallStatus] = {}
        """Tool calls that were allowed or rejected, and how they will end."""
        self._usage: chat_stream.TurnUsage | None = None

    async def show(self, event: chat_stream.ChatEvent) -> None:
        """Send an update."""
        match event:
            case chat_stream.TextEvent(text):
                await self.say(text)
            case chat_stream.ReasoningEvent(text):
                await self._update(acp.update_agent_thought_text(text))
            case chat_stream.ClosingEvent(_, usage):
                self._usage = usage
            case _:
                pass

    async def _update(self, update: Any) -> None:  # noqa: ANN401 - what the library makes
        await self._client.session_update(self._session_id, update)

    async def say(self, text: str) -> None:
        """Send a piece of the answer."""
        await self._update(acp.update_agent_message_text(text))

    async def answer(self, question: chat_stream.ChatQuestion, complaint: str | None) -> str | None:
        """Ask it; None for a form that it cannot show. UserInterrupted if the client is gone."""
        if complaint is not None:
            return question.asks.cancel()
        try:
            return await self._asked(question)
        except (acp.RequestError, ValueError):  # refused, or answered with something else
            return question.asks.cancel()
        except ConnectionError:
            raise UserInterrupted from None

    async def _asked(self, question: chat_stream.ChatQuestion) -> str | None:
        asks = question.asks
        if isinstance(asks, chat_stream.PermissionQuestion):
            return await self._permitted(question, asks)
        if not self._has_forms:
            return None
        form = schema.ElicitationSchema(
            properties={field.name: _property(field) for field in asks.fields},
            required=[field.name for field in asks.fields if field.required] or None,
        )
        mode = schema.ElicitationFormSessionMode(session_id=self._session_id, requested_schema=form)
        reply = await self._client.create_elicitation(asks.message, mode)
        return _form_answer(asks, reply)

    async def end_calls(self) -> None:
        """Say of each tool call that was decided how it ended, as far as anybody knows."""
        with suppress(ConnectionError):  # the client is gone
            for call_id, status in self._calls.items():
                await self._update(acp.update_tool_call(call_id, status=status))
        self._calls.clear()

    def usage(self) -> schema.Usage | None:
        """Return what the turn used."""
        used = self._usage
        if used is None:
            return None
        details = used.prompt_tokens_details
        return schema.Usage(
            input_tokens=used.prompt_tokens,
            output_tokens=used.completion_tokens,
            total_tokens=used.total_tokens,
            cached_read_tokens=None if details is None else details.cached_tokens,
        )

    async def _permitted(
        self, question: chat_stream.ChatQuestion, permission: chat_stream.PermissionQuestion
    ) -> str:
        title = permission.operation or "Something that needs an approval"
        call_id = question.call_id
        await self._update(acp.start_tool_call(call_id, title, kind="execute", status="pending"))
        self._calls[call_id] = "failed"
        response = await self._client.request_permission(
            self._session_id,
            schema.ToolCallUpdate(
                tool_call_id=call_id, title=title, kind="execute", status="pending"
            ),
            [_OPTIONS[option] for option in permission.options if option in _OPTIONS],
        )
        outcome, option = (
            response.outcome,
            chat_stream.CANCEL,
        )  # which is also for what was not offered
        if isinstance(outcome, schema.AllowedOutcome) and outcome.option_id in permission.options:
            option = outcome.option_id
        if option in _ALLOWED:
            self._calls[call_id] = "completed"
            await self._update(acp.update_tool_call(call_id, status="in_progress"))
        return option
