"""Validates requests to the stub of OpenAI's chat API: as strict as OpenAI where adapters go wrong.

Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tests.support.providers.openai_replies import DONE, error, stream, whole
from tests.support.providers.stub_text import (
    Attachment,
    JsonObject,
    attachment_from_url,
    join_parts,
    signed,
)

if TYPE_CHECKING:
    from tests.support.providers.byte_script import Script
    from tests.support.providers.openai_replies import ChatReply

_ROLES: Final = {"system", "developer", "user", "assistant", "tool", "function"}
_MOST_CHOICES: Final = 128


class RejectedChatRequest(Exception):
    """The request is invalid; carries the response."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.reply = error(400, message, param)


class CheckedChatRequest:
    """A request that passed OpenAI's checks."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise RejectedChatRequest("We could not parse the JSON body of your request.")
        fields = self.fields = cast("JsonObject", body)
        if not isinstance(fields.get("model"), str):
            raise RejectedChatRequest("you must provide a model parameter")
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages:
            raise RejectedChatRequest("Missing required parameter: 'messages'.", "messages")
        self.model: str = fields["model"]
        self.messages = [_checked(at, each) for at, each in enumerate(cast("list[Any]", messages))]
        _check_calls(self.messages)
        self.streams = fields.get("stream") is True
        self.include_usage = _includes_usage(fields, streams=self.streams)
        self.stops = _stops(fields)
        self.choices: int = _choices(fields)
        self.top_logprobs = _top_logprobs(fields)

    def schema(self) -> JsonObject | None:
        """Return the JSON schema that the response must match."""
        form: JsonObject = self.fields.get("response_format") or {}
        if form.get("type") == "json_object":
            return {"type": "object"}
        described: JsonObject = form.get("json_schema") or {}
        return described.get("schema")

    def events(self, reply: ChatReply) -> list[bytes]:
        """Return all events of a streamed response."""
        return [*reply.events(include_usage=self.include_usage), DONE]

    def answer(self, reply: ChatReply) -> Script:
        """Return the response as the request wants it, complete or streamed."""
        if self.streams:
            return stream(self.events(reply))
        return (whole(200, reply.completion()),)


# ------------------------------------------------------------------------------------- messages


def _checked(at: int, value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise RejectedChatRequest(
            f"Invalid type for 'messages[{at}]': expected an object.", "messages"
        )
    message = cast("JsonObject", value)
    role = message.get("role")
    if role not in _ROLES:
        known = ", ".join(f"'{each}'" for each in sorted(_ROLES))
        text = f"Invalid value: '{role}'. Supported values are: {known}."
        raise RejectedChatRequest(text, f"messages[{at}].role")
    if role == "assistant":
        _check_details(at, message)
    if isinstance(message.get("content"), list):
        echoed_text(message, f"messages[{at}]")
    return message


def _check_details(at: int, message: JsonObject) -> None:
    """Reject reasoning that does not match its signature."""
    details: list[JsonObject] = message.get("reasoning_details") or []
    thought = "".join(detail.get("text") or "" for detail in details)
    for detail in details:
        signature = detail.get("signature")
        if signature is not None and signature != signed("sig", thought):
            raise RejectedChatRequest(
                "Invalid signature in a thought.", f"messages[{at}].reasoning_details"
            )


def _check_calls(messages: list[JsonObject]) -> None:
    """Reject a call without a result after it, and a result without a call before it.

    A result without a call id and without open calls is accepted, as by some servers.
    """
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            call = message.get("tool_call_id")
            if call not in waiting and (call is not None or waiting):
                text = (
                    "messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'."
                )
                raise RejectedChatRequest(text, f"messages[{at}].role")
            waiting.discard(str(call))
            continue
        _check_answered(waiting, at)
        waiting = {_call_id(at, call) for call in message.get("tool_calls") or ()}
    _check_answered(waiting, len(messages))


def _call_id(at: int, call: JsonObject) -> str:
    for name in ("id", "type", "function"):
        if not call.get(name):
            param = f"messages[{at}].tool_calls[0].{name}"
            raise RejectedChatRequest(f"Missing required parameter: '{param}'.", param)
    return call["id"]


def _check_answered(waiting: set[str], at: int) -> None:
    if waiting:
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(sorted(waiting))}"
        )
        raise RejectedChatRequest(text, f"messages[{at}].role")


def echoed_text(message: JsonObject, path: str = "messages") -> str:
    """Return the text of a message, with acknowledgements of images and files."""
    content: str | list[JsonObject] | None = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    return join_parts(_part_says(part, path) for part in content)


def _part_says(part: JsonObject, path: str) -> str:
    try:
        match part.get("type"):
            case "text":
                return part["text"]
            case "image_url":
                return attachment_from_url("image", part["image_url"]["url"])
            case "file":
                file: JsonObject = part["file"]
                return attachment_from_url("document", file.get("file_data") or file["file_id"])
            case "input_audio":
                return Attachment(f"[audio {part['input_audio']['format']}]")
            case "refusal":
                return part["refusal"]
            case kind:
                raise RejectedChatRequest(f"Invalid value: '{kind}'.", f"{path}.content")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RejectedChatRequest("Invalid content part.", f"{path}.content") from None


# -------------------------------------------------------------------------------------- options


def _includes_usage(fields: JsonObject, *, streams: bool) -> bool:
    options: JsonObject | None = fields.get("stream_options")
    if options is not None and not streams:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise RejectedChatRequest(message, "stream_options")
    return bool(options and options.get("include_usage"))


def _stops(fields: JsonObject) -> list[str]:
    stop: str | list[str] | None = fields.get("stop")
    return [stop] if isinstance(stop, str) else stop or []


def _choices(fields: JsonObject) -> int:
    count: Any = fields.get("n") or 1
    if not isinstance(count, int) or not 1 <= count <= _MOST_CHOICES:
        raise RejectedChatRequest(
            f"Invalid 'n': expected an integer from 1 to {_MOST_CHOICES}.", "n"
        )
    return count


def _top_logprobs(fields: JsonObject) -> int | None:
    if fields.get("logprobs") is True:
        return fields.get("top_logprobs") or 0
    if fields.get("top_logprobs"):
        message = "You must set 'logprobs' to true to use 'top_logprobs'."
        raise RejectedChatRequest(message, "top_logprobs")
    return None
