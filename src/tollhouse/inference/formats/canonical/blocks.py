"""What a conversation is made of, in no one's format.

    Turn(role, blocks)      who spoke, and what was said: text, images, tool calls, reasoning ...

A client's history and a provider's reply are made of the same blocks, so that what one request
received can be sent with the next, to the same provider or to another.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

Role = Literal["system", "user", "assistant"]


class RedactedStruct(Struct, frozen=True, gc=False):
    """Of somebody's conversation, and therefore silent about what it holds."""

    def __repr__(self) -> str:
        """Show the kind alone."""
        return f"<{type(self).__name__}>"


class TextBlock(RedactedStruct, frozen=True):
    """What is said."""

    text: str
    cache: Raw | None = None
    """A `cache_control` object: where the provider may cut its cache."""


class RefusalBlock(RedactedStruct, frozen=True):
    """What the model says in place of an answer that it will not give."""

    text: str


class ImageBlock(RedactedStruct, frozen=True):
    """A picture."""

    url: str
    """Where it lies; a `data:` URL if it came along."""
    detail: str | None = None
    cache: Raw | None = None


class DocumentBlock(RedactedStruct, frozen=True):
    """A file to read: either `url` or `text`."""

    url: str | None = None
    """Where it lies; a `data:` URL if it came along."""
    text: str | None = None
    name: str | None = None
    cache: Raw | None = None


class AudioBlock(RedactedStruct, frozen=True):
    """Audio input."""

    data: str
    """In base64."""
    format: str


class ReasoningBlock(RedactedStruct, frozen=True):
    """A block of reasoning, with its provider's signature or encryption."""

    text: str = ""
    is_summary: bool = False
    """Whether the text is a summary of the reasoning, not the reasoning itself."""
    signature: str | None = None
    """The provider's signature of the text."""
    encrypted: str | None = None
    """The reasoning, encrypted by the provider."""
    id: str | None = None
    format: str | None = None
    """Format of signature and encryption, see `formats.canonical.reasoning`; None if unknown."""


class ToolCall(RedactedStruct, frozen=True):
    """The model wants a tool to be used."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: nearly always the text of a JSON object."""
    cache: Raw | None = None


class ToolResult(RedactedStruct, frozen=True):
    """What a tool gave back; stands in a user's turn."""

    call_id: str
    content: tuple[TextBlock | ImageBlock | DocumentBlock, ...]
    is_error: bool = False
    cache: Raw | None = None


Block = (
    TextBlock
    | RefusalBlock
    | ImageBlock
    | DocumentBlock
    | AudioBlock
    | ReasoningBlock
    | ToolCall
    | ToolResult
)


class Turn(RedactedStruct, frozen=True):
    """What somebody said at one go."""

    role: Role
    blocks: tuple[Block, ...]
