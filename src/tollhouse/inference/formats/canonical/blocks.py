"""The turns and content blocks of a canonical conversation.

    Turn(role, blocks)      text, images, documents, tool calls, tool results, reasoning ...

A client's history and a provider's response use the same blocks, so that the output of one request
can be sent with the next one, to the same provider or to another.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

Role = Literal["system", "user", "assistant"]


class RedactedStruct(Struct, frozen=True, gc=False):
    """A struct whose `repr` shows nothing of a conversation's content."""

    def __repr__(self) -> str:
        """Show the class name only."""
        return f"<{type(self).__name__}>"


class TextBlock(RedactedStruct, frozen=True):
    """Text."""

    text: str
    cache: Raw | None = None
    """A `cache_control` object: a breakpoint of the provider's prompt cache."""


class RefusalBlock(RedactedStruct, frozen=True):
    """The model's refusal to answer."""

    text: str


class ImageBlock(RedactedStruct, frozen=True):
    """An image."""

    url: str
    """An HTTP or a `data:` URL."""
    detail: str | None = None
    cache: Raw | None = None


class DocumentBlock(RedactedStruct, frozen=True):
    """A document; has either `url` or `text`."""

    url: str | None = None
    """An HTTP or a `data:` URL."""
    text: str | None = None
    name: str | None = None
    cache: Raw | None = None


class AudioBlock(RedactedStruct, frozen=True):
    """Audio input."""

    data: str
    """Base64."""
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
    """The format of signature and encrypted content, see `canonical.reasoning`; None if unknown."""


class ToolCall(RedactedStruct, frozen=True):
    """A tool call of the model."""

    id: str
    name: str
    arguments: str
    """As the model wrote them; nearly always a JSON object."""
    cache: Raw | None = None


class ToolResult(RedactedStruct, frozen=True):
    """The result of a tool call; part of a user's turn."""

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
    """The consecutive blocks of one role."""

    role: Role
    blocks: tuple[Block, ...]
