"""Converts `reasoning_details` from and to canonical reasoning blocks.

    reasoning.text       {text, signature}    reasoning, with its signature
    reasoning.summary    {summary}            a summary of the reasoning
    reasoning.encrypted  {data}               reasoning that only the provider can read

A canonical block is one detail, or two if it has both a readable and an encrypted part.

`reasoning` holds the same text in one string.

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
    """An item of `reasoning_details`."""

    type: str = ""
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    signature: str | None = None
    id: str | None = None
    format: str | None = None

    @property
    def readable_text(self) -> str:
        """The text or the summary."""
        return self.text or self.summary or ""


def parse_details(details: Iterable[ReasoningDetail]) -> list[ReasoningBlock]:
    """Return the blocks of details; an empty detail gives none."""
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
    """Return the `reasoning_details` of blocks."""
    found = [detail for block in blocks for detail in _details(block)]
    return [{**detail, "index": index} for index, detail in enumerate(found)]


def fill_reasoning_fields(message: Fields) -> Fields:
    """Return a message or a delta with its reasoning in all fields that clients read.

    Many servers send only `reasoning_content`, which is kept, or only `reasoning`.

    Raises:
        msgspec.DecodeError: The reasoning is not a string.
    """
    text = _text.decode(message.get("reasoning", NULL))
    text = text or _text.decode(message.get("reasoning_content", NULL))
    if not text:
        return message
    filled = {**message, "reasoning": raw(text)}
    if message.get("reasoning_details", NULL) == NULL:
        filled["reasoning_details"] = raw(render_details([ReasoningBlock(text)]))
    return filled


def _details(block: ReasoningBlock) -> Iterator[dict[str, object]]:
    common = {"id": block.id, "format": block.format}
    if block.is_summary:
        yield {"type": "reasoning.summary", "summary": block.text, **common}
    elif block.text or block.signature:
        text = {"type": "reasoning.text", "text": block.text, "signature": block.signature}
        yield {**text, **common}
    if block.encrypted:
        yield {"type": "reasoning.encrypted", "data": block.encrypted, **common}
