"""An editor's prompt as the text that an intern gets. Pure.

Source: https://agentclientprotocol.com/protocol/v1/content
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp.schema import (
    EmbeddedResourceContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class Unspeakable(ValueError):
    """A block that is no text: a picture, a sound, a file of bytes."""


def text_of_prompt(blocks: Sequence[object]) -> str:
    """Return the blocks of a prompt as one text.

    A file that an editor attaches is in the text as a whole: the intern has no access to the
    editor's machine. A link to one is its address and nothing more.

    Raises:
        Unspeakable: One of them is no text.
    """
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                parts.append(block.text)
            case ResourceContentBlock():
                parts.append(f"[{block.name}]({block.uri})")
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                parts.append(f'\n<file uri="{resource.uri}">\n{resource.text}\n</file>\n')
            case _:
                message = "an intern reads text alone: no pictures, sounds or other files"
                raise Unspeakable(message)
    return "".join(parts)
