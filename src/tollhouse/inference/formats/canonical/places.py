"""Finds the place of a block in the client's own body, for the message of a 400.

Blocks do not know where they came from: a request that can be carried needs no places, and one
that cannot is read once more. A block is known by its content, so that the first part with the same
content is named, which cannot be carried either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tollhouse.inference.formats.canonical.types import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
_body = msgspec.json.Decoder(dict[str, Any])
_LEAST_SHARED: Final = 16
"""Characters of a file's bytes that tell it from another word."""


class NotCarriedError(Exception):
    """A dialect has nothing for a block."""

    def __init__(self, block: Block, reason: str) -> None:
        super().__init__(reason)
        self.block = block
        self.reason = reason


def place_of(block: Block, body: bytes, content_field: str) -> str:
    """Return the path of a block's part in a body, `input[0].content[1]`; else of all content."""
    content = _content(block)
    try:
        conversation: Json = _body.decode(body)[content_field]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return content_field
    for path, text in _texts(conversation, content_field):
        own = text.rpartition(",")[2]  # the type before it may be written otherwise
        bytes_of_url = len(own) >= _LEAST_SHARED and content.endswith(own)
        if content and (text == content or bytes_of_url):
            return path
    return content_field


def _content(block: Block) -> str:
    if isinstance(block, (ImageBlock, DocumentBlock)):
        return block.url or ""
    if isinstance(block, AudioBlock):
        return block.data
    return block.text if isinstance(block, TextBlock) else ""


def _texts(conversation: Json, path: str) -> Iterator[tuple[str, str]]:
    """Return all texts in the order of the body, with their paths."""
    waiting = [(path, conversation)]
    while waiting:
        here, value = waiting.pop()
        if isinstance(value, str):
            yield here, value
        elif isinstance(value, dict):
            waiting += [(f"{here}.{name}", each) for name, each in reversed(value.items())]
        elif isinstance(value, list):
            waiting += reversed([(f"{here}[{at}]", each) for at, each in enumerate(value)])
