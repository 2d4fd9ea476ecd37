"""A minimal reply of each dialect, and builders of replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.unit.inference.formats.features.feature import Body

ALL = ("chat", "responses", "messages")
OBJECT = '{"at":"marker"}'
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5}
USAGE = {"input_tokens": 10, "output_tokens": 5}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": OBJECT}}
SAID: Body = {"type": "output_text", "text": "said", "annotations": []}
SPOKEN = {"type": "text", "text": "said"}


def chat(choice: Body | None = None, **message: Any) -> Body:
    """Return a chat completion.

    Args:
        choice: Fields of its only choice.
        message: Fields of the message.
    """
    said = {"role": "assistant", "content": "said", **message}
    only = {"index": 0, "message": said, "finish_reason": "stop", **(choice or {})}
    return {"id": "up-1", "choices": [only], "usage": CHAT_USAGE}


def response(*items: Body, **fields: Any) -> Body:
    """Return a response: these items, or one text."""
    said = items or (spoken(SAID),)
    given = {"id": "up-1", "status": "completed", "output": [*said], "usage": USAGE}
    return {**given, **fields}


def spoken(*parts: Body) -> Body:
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [*parts]}


def message(*blocks: Body, **fields: Any) -> Body:
    """Return a message: these blocks, or one text."""
    given = {"id": "up-1", "type": "message", "content": [*(blocks or (SPOKEN,))]}
    return {**given, "stop_reason": "end_turn", "usage": USAGE, **fields}


PLAIN: dict[str, Body] = {"chat": chat(), "responses": response(), "messages": message()}


def replies(
    chat: Body | None = None, responses: Body | None = None, messages: Body | None = None
) -> dict[str, Body]:
    """Return a reply in the dialects that support it."""
    given = {"chat": chat, "responses": responses, "messages": messages}
    return {name: body for name, body in given.items() if body is not None}
