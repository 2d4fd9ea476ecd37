"""What a caller says to an intern: a prompt, or the answer to a question. Pure.

Only the last message is read. What other chat APIs have beside (`temperature`, `tools`) is ignored:
an intern has its own.

Source: the public gateway's chat with interns.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple, cast, get_args
from unicodedata import category

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tollhouse.interns.chat.errors import BAD_REQUEST, ChatFailed
from tollhouse.kernel.wire import Omittable
from tollhouse.sandbox.daemon.settings import LONGEST_NAME, MOST_INPUT

LONGEST_CALL: Final = 128
"""Characters of the id of a tool call."""
LONGEST_MODEL: Final = 256

ApprovalMode = Literal["manual", "self-drive"]
_MODES: Final[tuple[ApprovalMode, ...]] = get_args(ApprovalMode)
_NAMELESS: Final = ("Cc", "Cs")
"""Categories of characters that no id has: controls, and halves of surrogate pairs."""


class ChatPrompt(NamedTuple):
    """Something to do."""

    session: str | None
    """None for a new one."""
    text: str
    approval_mode: ApprovalMode


class ChatAnswer(NamedTuple):
    """The answer to a question that an intern's run has asked."""

    session: str
    interaction: str
    text: str


def _only_true(value: bool) -> bool:  # noqa: FBT001 - pydantic calls it
    if not value:
        raise PydanticCustomError("stream", "must be true: an intern only streams")
    return value


def _is_id(text: str) -> bool:
    return not any(category(character) in _NAMELESS for character in text)


def _checked_id(value: str) -> str:
    if not _is_id(value):
        raise PydanticCustomError("id", "must not contain control characters")
    return value


def _checked_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON can write down half of a surrogate pair, which no UTF-8 text holds.
        raise PydanticCustomError("text", "must be valid Unicode") from None
    return value


SessionId = Omittable[
    Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_checked_id)]
]
_CONTENT: Final[dict[str, Any]] = {
    "description": "The text, or parts of it.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "text"],
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
            },
        },
        {"type": "null"},
    ],
}
_APPROVAL_MODE: Final[dict[str, Any]] = {"type": "string", "enum": [*_MODES]}
_CALL_ID: Final = {"type": "string", "minLength": 1, "maxLength": LONGEST_CALL}
_MESSAGES: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": _CONTENT,
            "tool_calls": {
                "type": "array",
                "description": "Of an assistant's message: the call that is answered next.",
                "items": {"type": "object"},
            },
            "tool_call_id": {**_CALL_ID, "description": "Of a tool's message: what it answers."},
        },
    },
}


class ChatBody(BaseModel):
    """A prompt for an intern, or the answer to its question; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, use_attribute_docstrings=True)

    stream: Annotated[
        bool, AfterValidator(_only_true), WithJsonSchema({"type": "boolean", "const": True})
    ]
    """Always true."""
    messages: Annotated[list[Any], Field(min_length=1), WithJsonSchema(_MESSAGES)]
    """Only the last one is read: a user's is a prompt, at most 32,000 characters; a tool's is the
    answer to the question that its `tool_call_id` names. The others are accepted."""
    model: Omittable[Annotated[str, Field(min_length=1, max_length=LONGEST_MODEL)]] = None
    """Ignored: an intern has its own."""
    session_id: SessionId = None
    """The session to go on with; a new one where it is left out, or not known. Required with an
    answer."""
    approval_mode: Annotated[Any, WithJsonSchema(_APPROVAL_MODE)] = "self-drive"
    """Whether tools that need an approval ask for it first. Holds for the run that a prompt begins;
    ignored with an answer."""

    def wanted(self) -> ChatPrompt | ChatAnswer:
        """Return what is asked for; raises `ChatFailed` where it is no prompt and no answer."""
        message: object = self.messages[-1]
        place = f"messages.{len(self.messages) - 1}"
        if not isinstance(message, dict):
            raise _invalid(f"{place}: must be an object.")
        fields = cast("dict[str, object]", message)
        match fields.get("role"):
            case "user":
                text = _text(fields.get("content"), place)
                if len(text) > MOST_INPUT:
                    raise _invalid(f"{place}.content: has more than {MOST_INPUT} characters.")
                return ChatPrompt(self.session_id, text, self._mode())
            case "tool":
                return self._answer(fields, place)
            case "system" | "developer" | "assistant":
                raise _invalid(f"{place}.role: the last message must be a user's or a tool's.")
            case _:
                raise _invalid(f"{place}.role: must be system, developer, user, assistant or tool.")

    def _mode(self) -> ApprovalMode:
        for mode in _MODES:
            if self.approval_mode == mode:
                return mode
        raise _invalid(f"approval_mode: must be {' or '.join(_MODES)}.")

    def _answer(self, fields: dict[str, object], place: str) -> ChatAnswer:
        if self.session_id is None:
            raise _invalid("session_id: is required where the last message is a tool's.")
        call = fields.get("tool_call_id")
        if not isinstance(call, str) or not 1 <= len(call) <= LONGEST_CALL or not _is_id(call):
            raise _invalid(
                f"{place}.tool_call_id: must be a text of 1 to {LONGEST_CALL} characters."
            )
        return ChatAnswer(self.session_id, call, _text(fields.get("content"), place))


class InvokeBody(BaseModel):
    """A prompt that runs without anybody who waits; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, use_attribute_docstrings=True)

    input: Annotated[str, Field(min_length=1, max_length=MOST_INPUT), AfterValidator(_checked_text)]
    """The prompt."""
    session_id: SessionId = None
    """The session to go on with: one that this operation issued to the same key for the same
    intern. A new one where it is left out."""


def _text(content: object, place: str) -> str:
    """Return the text of a message; raises `ChatFailed` where it is no text, or empty."""
    parts: list[object] = [content]
    if isinstance(content, list):
        # Several parts are one text: nothing says what would stand between them.
        parts = [_text_of_part(each) for each in cast("list[object]", content)]
    texts = [each for each in parts if isinstance(each, str)]
    if content is not None and len(texts) < len(parts):
        raise _invalid(f"{place}.content: must be a text, or a list of parts of the type text.")
    text = "".join(texts)
    if not text:
        raise _invalid(f"{place}.content: must not be empty.")
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can write down half of a surrogate pair, which no UTF-8 text holds.
        raise _invalid(f"{place}.content: must be valid Unicode.") from None
    return text


def _text_of_part(part: object) -> object:
    if not isinstance(part, dict):
        return None
    fields = cast("dict[str, object]", part)
    return fields.get("text") if fields.get("type") == "text" else None


def _invalid(message: str) -> ChatFailed:
    return ChatFailed(BAD_REQUEST, message)
