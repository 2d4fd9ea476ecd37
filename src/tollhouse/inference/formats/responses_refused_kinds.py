"""Requests for providers of the responses format that do not know every kind of item. Pure.

An item of a kind in the provider's `refuses` becomes the text that other formats get of it; where
they get none, and for a tool, the request is refused with its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.kinds import ITEMS, TOOLS, marked
from tollhouse.inference.formats.responses_client_items import OF_USERS
from tollhouse.inference.formats.responses_wire import item_decoder
from tollhouse.inference.formats.wire import NULL, raw, try_decode
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from tollhouse.inference.formats.wire import Fields

_FIELDS: Final = frozenset({"reasoning"})
"""Kinds that are names of fields, too: there the field is meant."""
_KINDS: Final = frozenset(ITEMS.keys() | TOOLS.keys()) - _FIELDS
_list = msgspec.json.Decoder(list[Raw])


def without_refused_kinds(given: Fields, refuses: AbstractSet[str]) -> dict[str, Raw]:
    """Return the fields that change for a provider; raises `Invalid` for what it cannot get."""
    kinds = refuses & _KINDS
    changed: dict[str, Raw] = {}
    if not kinds:
        return changed
    items = try_decode(_list, given["input"])
    if items is not None:
        told = [_told(item, f"input[{at}]", kinds) for at, item in enumerate(items)]
        changed["input"] = raw(told)
    for at, tool in enumerate(try_decode(_list, given.get("tools", NULL)) or ()):
        if (kind := _kind(tool)) in kinds:
            raise _refused(kind, f"tools[{at}]")
    return changed


def _kind(data: Raw) -> str | None:
    found = try_decode(item_decoder, data)
    return None if found is None else found.type


def _told(data: Raw, path: str, kinds: AbstractSet[str]) -> Raw:
    kind = _kind(data)
    if kind is None or kind not in kinds:
        return data
    if kind not in ITEMS or ITEMS[kind].rule != "text":
        raise _refused(kind, path)
    role = "user" if kind in OF_USERS else "assistant"
    part: dict[str, object] = {"type": "input_text"}
    if role == "assistant":
        part = {"type": "output_text", "annotations": []}
    content = [part | {"text": marked(kind, data)}]
    return raw({"type": "message", "role": role, "content": content})


def _refused(kind: str | None, path: str) -> Invalid:
    return Invalid(f"{path}.type: {kind!r} is not taken by this model's provider.")
