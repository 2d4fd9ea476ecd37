"""Checks the order of a stream's items and parts that clients rely on.

    output_item.added  (content_part.added  its deltas)*  output_item.done

Clients assemble the response while it arrives: an event about an item or a part that was not added
breaks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.formats.fields import Fields

_INSIDE: Final = (
    "response.content_part.",
    "response.output_text.",
    "response.refusal.",
    "response.reasoning_",
    "response.function_call_arguments.",
    "response.custom_tool_call_input.",
)
_IN_PART: Final = ("response.output_text.", "response.refusal.")
_index = msgspec.json.Decoder(int)


class _Named(msgspec.Struct):
    name: str = ""


_named = msgspec.json.Decoder(_Named)


class ResponsesItemOrder:
    """Tracks the open items and parts of one stream."""

    def __init__(self) -> None:
        self._items: dict[int, Raw] = {}
        self._parts: set[tuple[int, int]] = set()
        self._seen: set[int] = set()

    def accept(self, kind: str, fields: Fields) -> None:
        """Check the next event, and fill in fields that clients need.

        Raises:
            MalformedResponse: The event belongs to nothing open, or adds something twice.
        """
        if kind == "response.output_item.added":
            self._begin(_index.decode(fields["output_index"]), fields["item"])
        elif kind == "response.output_item.done":
            self._expect(fields)
            del self._items[_index.decode(fields["output_index"])]
        elif kind.startswith(_INSIDE):
            self._inside(kind, fields)

    def missing_ends(self, output: Sequence[Raw]) -> list[dict[str, object]]:
        """Return the fields of `output_item.done` for the items that are open at the end.

        Args:
            output: The output of the terminal event, which has the complete items.

        Raises:
            MalformedResponse: The output lacks an open item.
        """
        if any(index >= len(output) for index in self._items):
            message = "the response ended before its items"
            raise MalformedResponse(message)
        return [{"output_index": index, "item": output[index]} for index in sorted(self._items)]

    def _begin(self, index: int, item: Raw) -> None:
        if index in self._seen:
            message = "an item of the response begins twice"
            raise MalformedResponse(message)
        self._seen.add(index)
        self._items[index] = item

    def _inside(self, kind: str, fields: Fields) -> None:
        item = self._expect(fields)
        index = _index.decode(fields["output_index"])
        if kind == "response.content_part.added":
            self._parts.add((index, _index.decode(fields["content_index"])))
        elif kind.startswith(_IN_PART):
            if (index, _index.decode(fields["content_index"])) not in self._parts:
                message = "a text comes outside of its part"
                raise MalformedResponse(message)
        elif kind == "response.function_call_arguments.done" and "name" not in fields:
            fields["name"] = Raw(msgspec.json.encode(_named.decode(item).name))

    def _expect(self, fields: Fields) -> Raw:
        item = self._items.get(_index.decode(fields["output_index"]))
        if item is None:
            message = "an event of the response comes outside of its item"
            raise MalformedResponse(message)
        return item
