"""Checks a stream of a chat with an intern against the published grammar. Pure.

    chat = check_stream(b'...')
    chat.content, chat.finish, chat.error, ...

Every suite that sees such a stream has it checked here. What is checked is the published grammar
and nothing of the code that writes it:

    role ──> content | reasoning ... ──> [tool call] ──> finish ──> final ──> [DONE]
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.chat_tee import RecordedStream

KEEP_ALIVE: Final = ": keepalive"
DONE: Final = "data: [DONE]"
OWN_MODEL: Final = "openrouter/intern"
TOOL: Final = "openrouter.provide_input"
OPTIONS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
IN_STREAM: Final = {
    "attachment_failed": ({409, 410}, False),
    "busy": ({409, 503}, True),
    "client_closed_request": ({499}, False),
    "interaction_not_pending": ({409}, False),
    "interaction_unknown": ({404}, False),
    "intern_unreachable": ({502}, True),
    "run_ended": ({410}, False),
    "stream_severed": ({502}, True),
    "timeout": ({504}, True),
    "turn_failed": ({502}, None),
}
"""Reason -> its codes, and whether it is retryable; None where that varies."""
MADE_BY_THE_API: Final = frozenset({"run_ended", "stream_severed", "timeout"})
"""Reasons of errors whose chunks name the API's own model."""

_ID: Final = re.compile(r"chatcmpl-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COMMON: Final = {"id", "object", "created", "model", "choices"}


class IllegalStream(AssertionError):
    """A stream that breaks the grammar."""


@dataclass
class ParsedChat:
    """The content of a legal stream."""

    id: str = ""
    content: str = ""
    reasoning: str = ""
    call: dict[str, Any] | None = None
    """The tool call; its arguments are the text as it was sent."""
    asked: dict[str, Any] | None = None
    """The parsed arguments of that call."""
    finish: str = ""
    error: dict[str, Any] | None = None
    session_id: str | None = None
    usage: dict[str, Any] | None = None
    models: list[str] = field(default_factory=list)
    """The model that each chunk names."""
    keep_alives: int = 0

    @property
    def reason(self) -> str | None:
        return None if self.error is None else self.error["metadata"]["reason"]


def check_stream(data: bytes) -> ParsedChat:
    """Check a stream and return its content.

    Raises:
        IllegalStream: It breaks the grammar; says where.
    """
    _require(data.endswith(b"\n\n"), "the stream does not end with an empty line")
    blocks = data.decode().removesuffix("\n\n").split("\n\n")
    _require(blocks[-1] == DONE, f"the last event is {blocks[-1][:80]!r}")
    chat = ParsedChat()
    chunks = _chunks(blocks[:-1], chat)
    _require(len(chunks) >= 3, f"{len(chunks)} chunks cannot be a stream")
    first, *middle, finish, final = chunks
    _check_first(first)
    _check_all_middle(middle, chat)
    _check_finish(finish, chat)
    _check_final(final, chat)
    return chat


def check_recorded(recorded: RecordedStream) -> None:
    """Check a recorded stream: a whole one, or the beginning of one that the client left.

    Raises:
        Illegal: It breaks the grammar, or the gateway broke it off itself.
    """
    if recorded.ended or recorded.data.endswith(f"{DONE}\n\n".encode()):
        check_stream(recorded.data)
        return
    _require(recorded.client_left, f"the gateway broke off a stream after {recorded.data[-80:]!r}")
    chat = ParsedChat()
    whole, _, _ = recorded.data.decode(errors="replace").rpartition("\n\n")
    first, *middle = _chunks(whole.split("\n\n"), chat) if whole else [None]
    if first is not None:
        _check_first(first)
        # What may follow is its end: how a stream ends is checked where it does.
        going_on = [each for each in middle if _goes_on(each)]
        _require(middle[: len(going_on)] == going_on, "goes on after it has finished")
        _check_all_middle(going_on, chat)


def _chunks(blocks: Sequence[str], chat: ParsedChat) -> list[dict[str, Any]]:
    """Return the chunks of some events, checked for what all of them share."""
    chunks: list[dict[str, Any]] = []
    for block in blocks:
        if block == KEEP_ALIVE:
            chat.keep_alives += 1
        else:
            _require(block.startswith("data: {") and "\n" not in block, f"no chunk: {block[:80]!r}")
            chunks.append(json.loads(block.removeprefix("data: ")))
    if chunks:
        chat.id = str(chunks[0].get("id"))
        _require(_ID.fullmatch(chat.id) is not None, f"the id {chat.id!r}")
    for chunk in chunks:
        _check_common(chunk, chunks[0])
        chat.models.append(chunk["model"])
    return chunks


def _goes_on(chunk: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") is None for choice in chunk["choices"])


def _check_all_middle(chunks: Sequence[dict[str, Any]], chat: ParsedChat) -> None:
    for place, chunk in enumerate(chunks):
        _check_middle(chunk, chat, is_last=place == len(chunks) - 1)


def _check_common(chunk: dict[str, Any], first: dict[str, Any]) -> None:
    _require(chunk.get("object") == "chat.completion.chunk", f"the object of {chunk}")
    _require(chunk.get("id") == first["id"], "the id changes")
    created = chunk.get("created")
    _require(type(created) is int and created == first.get("created"), f"created: {created!r}")
    model = chunk.get("model")
    _require(isinstance(model, str) and model != "", f"the model {model!r}")
    _require(isinstance(chunk.get("choices"), list), f"the choices of {chunk}")


def _choice(chunk: dict[str, Any], *beside: str) -> dict[str, Any]:
    _require(set(chunk) == {*_COMMON, *beside}, f"the keys {sorted(chunk)}")
    _require(len(chunk["choices"]) == 1, f"{len(chunk['choices'])} choices")
    choice = chunk["choices"][0]
    _require(set(choice) == {"index", "delta", "finish_reason"}, f"the keys of {choice}")
    _require(choice["index"] == 0, "another index than 0")
    _require(isinstance(choice["delta"], dict), "a delta that is no object")
    return choice


def _check_first(chunk: dict[str, Any]) -> None:
    choice = _choice(chunk)
    _require(choice["delta"] == {"role": "assistant", "content": ""}, f"begins with {choice}")
    _require(choice["finish_reason"] is None, "is finished in the first chunk")


def _check_middle(chunk: dict[str, Any], chat: ParsedChat, *, is_last: bool) -> None:
    choice = _choice(chunk)
    _require(choice["finish_reason"] is None, "goes on after it has finished")
    (name, value), *others = choice["delta"].items() or [("", None)]
    _require(not others, f"a delta of several: {sorted(choice['delta'])}")
    if name == "tool_calls":
        _require(is_last, "something follows the tool call")
        _check_call(value, chat)
    else:
        _require(name in {"content", "reasoning"}, f"a delta of {name!r}")
        _require(isinstance(value, str) and value != "", f"an empty {name}")
        setattr(chat, name, getattr(chat, name) + value)


def _check_call(calls: Any, chat: ParsedChat) -> None:
    _require(isinstance(calls, list) and len(calls) == 1, f"the tool calls {calls}")
    call = calls[0]
    _require(set(call) == {"index", "id", "type", "function"}, f"the keys of {call}")
    _require((call["index"], call["type"]) == (0, "function"), f"the call {call}")
    _require(isinstance(call["id"], str) and 1 <= len(call["id"]) <= 128, f"its id {call['id']!r}")
    function = call["function"]
    _require(set(function) == {"name", "arguments"}, f"the keys of {function}")
    _require(function["name"] == TOOL, f"the tool {function['name']!r}")
    asked = json.loads(function["arguments"])
    if asked.get("kind") == "permission":
        _require(set(asked) == {"kind", "operation", "options"}, f"the permission {asked}")
        _require(asked["operation"] is None or isinstance(asked["operation"], str), "the operation")
        options = asked["options"]
        _require(len(set(options)) == len(options), f"options twice: {options}")
        _require(set(options) <= set(OPTIONS), f"the options {options}")
    else:
        _require(asked.get("kind") == "elicitation", f"the kind {asked.get('kind')!r}")
        _require(set(asked) == {"kind", "message", "fields"}, f"the elicitation {sorted(asked)}")
        _require(isinstance(asked["message"], str), "its message")
        for each in asked["fields"]:
            _require(set(each) - {"options"} == {"name", "type", "required"}, f"the field {each}")
    chat.call, chat.asked = call, asked


def _check_finish(chunk: dict[str, Any], chat: ParsedChat) -> None:
    beside = ("error",) if "error" in chunk else ()
    choice = _choice(chunk, *beside)
    chat.finish = choice["finish_reason"]
    _require(chat.finish in {"stop", "tool_calls", "error"}, f"finishes with {chat.finish!r}")
    _require(choice["delta"] == {}, f"says {choice['delta']} as it finishes")
    _require((chat.finish == "error") == ("error" in chunk), "an error that is none")
    _require((chat.finish == "tool_calls") == (chat.call is not None), "a call without its finish")
    if chat.finish == "error":
        _check_error(chunk["error"], chat)


def _check_error(error: dict[str, Any], chat: ParsedChat) -> None:
    _require(set(error) == {"code", "message", "metadata"}, f"the error {error}")
    told = set(error["metadata"]) - {"limit_source", "remedy_hint"}
    _require(told == {"reason", "retryable"}, f"its metadata {error['metadata']}")
    reason, retryable = error["metadata"]["reason"], error["metadata"]["retryable"]
    _require(reason in IN_STREAM, f"the reason {reason!r}, which no stream has")
    codes, expected = IN_STREAM[reason]
    _require(error["code"] in codes, f"the code {error['code']} of {reason}")
    _require(isinstance(retryable, bool), f"retryable is {retryable!r}")
    _require(expected is None or retryable is expected, f"{reason} is retryable: {retryable}")
    _require(isinstance(error["message"], str) and error["message"] != "", "an error says nothing")
    chat.error = error


def _check_final(chunk: dict[str, Any], chat: ParsedChat) -> None:
    _require(set(chunk) == {*_COMMON, "session_id", "usage"}, f"the final keys {sorted(chunk)}")
    _require(chunk["choices"] == [], "choices in the final chunk")
    session, usage = chunk["session_id"], chunk["usage"]
    _require(session is None or 1 <= len(session) <= 256, f"the session {session!r}")
    _require(session is not None or chat.finish == "error", "no session, and no error")
    if usage is not None:
        _require(chat.finish != "tool_calls", "usage although the turn is not over")
        _check_usage(usage)
    if chat.reason in MADE_BY_THE_API:
        _require(chat.models[-2:] == [OWN_MODEL] * 2, f"the API's chunks name {chat.models[-2:]}")
    chat.session_id, chat.usage = session, usage


def _check_usage(usage: dict[str, Any]) -> None:
    counts = {"prompt_tokens", "completion_tokens", "total_tokens"}
    _require(counts <= set(usage), f"the usage {sorted(usage)}")
    _require(set(usage) <= {*counts, "cost", "prompt_tokens_details"}, f"the usage {sorted(usage)}")
    _require(all(type(usage[each]) is int and usage[each] >= 0 for each in counts), f"{usage}")
    total = usage["prompt_tokens"] + usage["completion_tokens"]
    _require(usage["total_tokens"] == total, f"the sum in {usage}")
    _require(isinstance(usage.get("cost", 0.0), float | int), f"the cost in {usage}")
    details = usage.get("prompt_tokens_details", {"cached_tokens": 0})
    _require(set(details) == {"cached_tokens"}, f"the details {details}")
    _require(type(details["cached_tokens"]) is int, f"the details {details}")


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - an assertion
    if not holds:
        raise IllegalStream(otherwise)
