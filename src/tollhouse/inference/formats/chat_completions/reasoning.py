"""`reasoning_details` between the chat format and ours.

    reasoning.text       {text, signature}    reasoning, with its signature
    reasoning.summary    {summary}            a summary of the reasoning
    reasoning.encrypted  {data}               reasoning that only the provider can read

One block of ours is one detail, or two where it has both a readable and an encrypted part.

`reasoning` has the same as plain text.

Source: the public gateway's reference of reasoning tokens, "preserving reasoning".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.canonical.blocks import ReasoningBlock
from tollhouse.inference.formats.raw_json import NULL, raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tollhouse.inference.formats.fields import Fields

_text = msgspec.json.Decoder(str | None)


class ReasoningDetail(msgspec.Struct):
    """One of `reasoning_details`."""

    type: str = ""
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    signature: str | None = None
    id: str | None = None
    format: str | None = None

    @property
    def readable_text(self) -> str:
        """What can be read of it."""
        return self.text or self.summary or ""


def parse_details(details: Iterable[ReasoningDetail]) -> list[ReasoningBlock]:
    """Return the blocks that details are of; one that says nothing is none."""
    blocks: list[ReasoningBlock] = []
    for detail in details:
        block = _block(detail)
        if block is None:
            continue
        before = blocks[-1] if blocks else None
        if before is not None and before.is_summary and not before.encrypted and block.encrypted:
            block = msgspec.structs.replace(block, text=before.text, is_summary=True)
            blocks.pop()
        blocks.append(block)
    return blocks


def _block(detail: ReasoningDetail) -> ReasoningBlock | None:
    if not (detail.readable_text or detail.signature or detail.data):
        return None
    return ReasoningBlock(
        text=detail.readable_text,
        is_summary=detail.type == "reasoning.summary",
        signature=detail.signature,
        encrypted=detail.data,
        id=detail.id,
        format=detail.format,
    )


def render_details(blocks: Iterable[ReasoningBlock]) -> list[dict[str, object]]:
    """Return the details of blocks."""
    found = [detail for block in blocks for detail in _details(block)]
    return [{**detail, "index": index} for index, detail in enumerate(found)]


def fill_reasoning_fields(said: Fields) -> Fields:
    """Return a message, or what a chunk adds, with its reasoning where all clients look for it.

    Many servers send it as `reasoning_content`, which stays, or only as `reasoning`.

    Raises:
        msgspec.DecodeError: It is not a string.
    """
    thought = _text.decode(said.get("reasoning", NULL))
    thought = thought or _text.decode(said.get("reasoning_content", NULL))
    if not thought:
        return said
    spread = {**said, "reasoning": raw(thought)}
    if said.get("reasoning_details", NULL) == NULL:
        spread["reasoning_details"] = raw(render_details([ReasoningBlock(thought)]))
    return spread


def _details(block: ReasoningBlock) -> Iterator[dict[str, object]]:
    common = {"id": block.id, "format": block.format}
    if block.is_summary:
        yield {"type": "reasoning.summary", "summary": block.text, **common}
    elif block.text or block.signature:
        text = {"type": "reasoning.text", "text": block.text, "signature": block.signature}
        yield {**text, **common}
    if block.encrypted:
        yield {"type": "reasoning.encrypted", "data": block.encrypted, **common}
