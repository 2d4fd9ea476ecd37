"""Puts the events of a responses stream in the order that clients rely on: one rule. Pure.

    output_item.added  (content_part.added  its deltas  its ends)*  output_item.done

Servers leave out beginnings, ends, ids and the output at the end, number every item 0, and send a
call's arguments as an object. What holds for all of them:

    an event belongs to the item of its id, or else to the last one at its number
    an item, a part or a text that has not begun begins with what is said of it
    what is still open at the end of an item or of the stream ends there
    a call has an id: its own, that of its item, or a number
    arguments follow their own rule; those of an item count if there were none before

Source: https://platform.openai.com/docs/api-reference/responses-streaming; Codex' own server leaves
`output` empty in the last event, vLLM and LM Studio leave out beginnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.arguments import Arguments, arguments_text
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    fields_decoder,
    raw,
    text_decoder,
    try_decode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Told = tuple[str, Fields]
"""An event's type and its fields."""

_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"
_ARGUMENTS: Final = "response.function_call_arguments"
_PART: Final = "response.content_part"
_SUMMARY: Final = "response.reasoning_summary_part"
_TEXTS: Final = {
    # Of each text: the kind of its item, the part around it, the name of its place, and what it is.
    "response.output_text": ("message", _PART, "content_index", "output_text", "text"),
    "response.refusal": ("message", _PART, "content_index", "refusal", "refusal"),
    "response.reasoning_text": ("reasoning", _PART, "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text": (
        *("reasoning", _SUMMARY, "summary_index", "summary_text", "text"),
    ),
}
_PLACES: Final = {_PART: ("content", "content_index"), _SUMMARY: ("summary", "summary_index")}
"""Of each part: where an item has it, and the name of its place there."""
_OF_PLACE: Final = {
    part: [name for name, each in _TEXTS.items() if each[1] == part] for part in _PLACES
}
"""The texts that may stand in each part."""
_OF_PART: Final = {each[3]: name for name, each in _TEXTS.items()}
_INPUT: Final = "response.custom_tool_call_input"
_INSIDE: Final = (_PART, _SUMMARY, _ARGUMENTS, _INPUT, *_TEXTS)
_PREFIXES: Final = {"function_call": "fc", "message": "msg"}
ITEM_EVENTS: Final = (_ADDED, _DONE, *_INSIDE)
"""How the types of all events begin that are put in order."""
_number = msgspec.json.Decoder(int | None)
_parts = msgspec.json.Decoder(list[Fields] | None)
_BLANK: Final[Mapping[str, Mapping[str, object]]] = {
    "message": {"type": "message", "role": "assistant", "status": "in_progress", "content": ()},
    "reasoning": {"type": "reasoning", "summary": ()},
}
"""Items that nothing but their content begins."""
_EMPTY: Final[Mapping[str, object]] = {"annotations": (), "logprobs": ()}


def _parts_of(fields: Fields, name: str) -> Sequence[Fields]:
    return try_decode(_parts, fields.get(name, NULL)) or ()


def _text(fields: Fields, name: str) -> str:
    return try_decode(text_decoder, fields.get(name, NULL)) or ""


def whole_item(item: Fields, number: int) -> Fields:
    """Return an item with an id, and a call with the id of a call and its arguments as a text."""
    kind = _text(item, "type")
    if kind not in _PREFIXES:
        return item
    if kind == "function_call":
        call = _text(item, "call_id") or _text(item, "id") or f"call_{number}"
        item = {**item, "call_id": raw(call)}
        if memoryview(given := item.get("arguments", NULL))[0] != ord('"'):
            item["arguments"] = raw(arguments_text(given))
    return item if _text(item, "id") else {**item, "id": raw(f"{_PREFIXES[kind]}_{number}")}


def whole_items(items: Iterable[Fields]) -> list[Fields]:
    """Return items as `whole_item` does, with an id for each call that no other has."""
    calls: set[str] = set()
    return [_own_call(whole_item(each, at), at, calls) for at, each in enumerate(items)]


def _own_call(item: Fields, number: int, calls: set[str]) -> Fields:
    """Return an item whose call has none of some ids, and note its own."""
    call = _text(item, "call_id")
    if call in calls and _text(item, "type") == "function_call":
        item = {**item, "call_id": raw(f"{call}_{number}")}
    calls.add(call)
    return item


def _places(item: Fields) -> list[tuple[str, str, str]]:
    """Return how an item is told from others of its type."""
    kind = _text(item, "type")
    found = [(kind, name, _text(item, name)) for name in ("call_id", "id")]
    return [each for each in found if each[2]] or [(kind, "", "")]


class _Item:
    """An item that has begun."""

    def __init__(self, number: int, item: Fields) -> None:
        self.number = number
        self.item = item
        """As it was shown last."""
        self.kind = _text(item, "type")
        self.id = item.get("id", NULL)
        self.done = False
        self.arguments = Arguments()
        self.arguments_done = False
        self.texts: dict[tuple[str, int], list[str]] = {}
        self.open_texts: set[tuple[str, int]] = set()
        self.parts: set[tuple[str, int]] = set()
        self.open_parts: set[tuple[str, int]] = set()

    def event(self, kind: str, **fields: object) -> Told:
        at = {"output_index": raw(self.number)} | ({} if self.id == NULL else {"item_id": self.id})
        return kind, at | {name: raw(value) for name, value in fields.items()}


class ItemOrder:
    """Tracks the items and parts of one stream."""

    def __init__(self) -> None:
        self.last_text: list[str] = []
        """The pieces of the text that the last event belonged to."""
        self._items: list[_Item] = []
        self._calls: set[str] = set()
        self._at: dict[int | None, _Item] = {}
        self._of_id: dict[str, _Item] = {}

    def accept(self, kind: str, fields: Fields) -> list[Told]:
        """Return the events that the client gets of one; raises as `AdaptedStream.feed` does."""
        try:
            if kind == _ADDED:
                return self._add(fields)
            if kind == _DONE:
                return self._end(fields)
            return self._inside(kind, fields) if kind.startswith(_INSIDE) else [(kind, fields)]
        except (msgspec.DecodeError, KeyError):
            message = "an event of the stream is not what its type promises"
            raise MalformedResponse(message) from None

    def finish(self, output: Sequence[Raw]) -> tuple[list[Told], list[Fields]]:
        """Return what was not said before the end, and the whole output."""
        told: list[Told] = []
        given = whole_items(map(fields_decoder.decode, output))
        left = {place: each for each in given for place in _places(each)}
        shown: set[int] = set()
        for item in self._items:
            own = next((left[place] for place in _places(item.item) if place in left), None)
            shown.add(id(own))
            if not item.done:
                told += self._close(item, item.item if own is None else own)
            elif own is not None:
                item.item = self._filled(item, own)
        for each in [each for each in given if id(each) not in shown]:
            item, begun = self._begin(each, None)
            told += [*begun, *self._close(item, item.item | each)]
        return told, [each.item for each in self._items]

    # Items

    def _find(self, fields: Fields, item_id: str, kind: str = "") -> _Item | None:
        found = self._of_id.get(item_id) if item_id else None
        if found is None:
            found = self._at.get(_number.decode(fields.get("output_index", NULL)))
        return found if found is None or kind in ("", found.kind) else None

    def _begin(self, item: Fields, given: int | None) -> tuple[_Item, list[Told]]:
        number = len(self._items)
        shown = _own_call(whole_item(item, number), number, self._calls)
        if "arguments" in shown and _text(shown, "type") == "function_call":
            shown = {**shown, "arguments": raw("")}
        begun = _Item(number, shown)
        self._items.append(begun)
        self._at[given] = self._at[None] = begun
        if own := _text(shown, "id"):
            self._of_id[own] = begun
        kept = {"output_index": raw(number), "item": raw(shown)}
        return begun, [(_ADDED, kept)]

    def _add(self, fields: Fields) -> list[Told]:
        item = fields_decoder.decode(fields["item"])
        same = self._of_id.get(_text(item, "id"))
        if same is not None:
            return []
        given = _number.decode(fields.get("output_index", NULL))
        begun, told = self._begin(item, given)
        if begun.kind == "function_call":
            # Its arguments, if no others come.
            begun.item = whole_item(item, begun.number) | {"call_id": begun.item["call_id"]}
        if given == begun.number and (begun.kind not in _PREFIXES or begun.item == item):
            told = (
                [(_ADDED, fields)]
                if begun.kind != "function_call"
                else [(_ADDED, {**fields, **told[0][1]})]
            )
        else:
            told = [(_ADDED, {**fields, **told[0][1]})]
        return told

    def _end(self, fields: Fields) -> list[Told]:
        item = fields_decoder.decode(fields["item"])
        known = self._find(fields, _text(item, "id"), _text(item, "type"))
        if known is not None and known.done and _text(item, "id") == _text(known.item, "id"):
            return []
        begun: list[Told] = []
        if known is None or known.done:
            blank = {name: value for name, value in item.items() if name not in _CONTENT}
            blank |= {name: Raw(b"[]") for name in _CONTENT & item.keys() if name != "arguments"}
            given = _number.decode(fields.get("output_index", NULL))
            known, begun = self._begin(
                blank | {"arguments": raw("")} if _text(item, "type") == "function_call" else blank,
                given,
            )
        closed = self._close(known, whole_item(item, known.number))
        kind, ours = closed[-1]
        return [*begun, *closed[:-1], (kind, {**fields, **ours})]

    def _close(self, item: _Item, final: Fields) -> list[Told]:
        """Return what ends an item, and what was not said of it before."""
        told: list[Told] = []
        if item.kind == "function_call":
            told += self._end_arguments(item, final)
        told += self._rest(item, final)
        for name, at in sorted(item.open_texts):
            told += self._end_text(item, name, at)
        given = {part: _parts_of(final, field) for part, (field, _) in _PLACES.items()}
        for part, at in sorted(item.open_parts):
            told.append(self._end_part(item, part, at, given[part]))
        item.item, item.done = self._filled(item, final), True
        done = {"output_index": raw(item.number), "item": raw(item.item)}
        return [*told, (_DONE, done)]

    def _filled(self, item: _Item, final: Fields) -> Fields:
        """Return an item with its id, and with what was said of it where the item is empty."""
        final = {**final, "id": item.id} if item.id != NULL else final
        if item.kind == "function_call":
            call = item.item.get("call_id", NULL)
            return {**final, "call_id": call, "arguments": raw(item.arguments.text)}
        if item.kind == "message" and not _parts_of(final, "content"):
            texts = sorted(item.texts)
            return {**final, "content": raw([self._part(item, *each) for each in texts])}
        return final

    # What stands in items

    def _inside(self, kind: str, fields: Fields) -> list[Told]:
        item = self._find(fields, _text(fields, "item_id"))
        name, _, what = kind.rpartition(".")
        begun: list[Told] = []
        if item is None or (name in _TEXTS and item.kind != _TEXTS[name][0]):
            if name not in _TEXTS:
                return []  # the end of its item says all of it
            blank: Fields = {"type": raw(_TEXTS[name][0])}
            if _TEXTS[name][0] == "message":
                blank |= {
                    "role": raw("assistant"),
                    "content": Raw(b"[]"),
                    "status": raw("in_progress"),
                }
            else:
                blank |= {"summary": Raw(b"[]")}
            if own := _text(fields, "item_id"):
                blank["id"] = raw(own)
            item, begun = self._begin(blank, _number.decode(fields.get("output_index", NULL)))
        if item.done:
            return begun
        if fields.get("output_index") != raw(item.number) or (
            item.id != NULL and fields.get("item_id") != item.id
        ):
            fields = {**fields, **item.event(kind)[1]}
        if name == _ARGUMENTS:
            return [*begun, *self._arguments(item, what, kind, fields)]
        if name in (_PART, _SUMMARY):
            return self._part_event(item, name, what, kind, fields)
        return [*begun, *self._text_event(item, name, what, kind, fields)]

    def _arguments(self, item: _Item, what: str, kind: str, fields: Fields) -> list[Told]:
        if what == "delta":
            given = arguments_text(fields.get("delta", NULL))
            text = item.arguments.add(given)
            if not text:
                return []
            same = memoryview(fields["delta"])[0] == ord('"') and text == given
            return [(kind, fields if same else {**fields, "delta": raw(text)})]
        told = self._end_arguments(item, fields)
        return [*told[:-1], (kind, {**fields, **told[-1][1]})] if told else []

    def _end_arguments(self, item: _Item, final: Fields) -> list[Told]:
        if item.arguments_done:
            return []
        item.arguments_done = True
        told: list[Told] = []
        whole = arguments_text(final.get("arguments", NULL)) or _text(item.item, "arguments")
        more = "" if item.arguments.begun else item.arguments.add(whole)
        if more := more + item.arguments.end():
            told = [item.event(f"{_ARGUMENTS}.delta", delta=more)]
        name = final.get("name", item.item.get("name", raw("")))
        done = item.event(f"{_ARGUMENTS}.done", arguments=item.arguments.text, name=name)
        return [*told, done]

    def _part_event(
        self, item: _Item, name: str, what: str, kind: str, fields: Fields
    ) -> list[Told]:
        place = "summary_index" if name == _SUMMARY else "content_index"
        at = (name, _number.decode(fields.get(place, NULL)) or 0)
        if what == "added":
            if at in item.parts:
                return []
            item.parts.add(at)
            item.open_parts.add(at)
            return [(kind, fields)]
        if at not in item.open_parts:
            return []
        texts = [(each, at[1]) for each in _OF_PLACE[name] if (each, at[1]) in item.open_texts]
        told = [event for each in texts for event in self._end_text(item, *each)]
        item.open_parts.discard(at)
        return [*told, (kind, fields)]

    def _text_event(
        self, item: _Item, name: str, what: str, kind: str, fields: Fields
    ) -> list[Told]:
        if name not in _TEXTS:
            return [(kind, fields)]
        _, part, place, _, field = _TEXTS[name]
        at = _number.decode(fields.get(place, NULL)) or 0
        told: list[Told] = []
        if place not in fields:
            fields = {**fields, place: raw(at)}
        if what == "delta":
            text = try_decode(text_decoder, fields.get("delta", NULL))
            if text is None:
                return []
            told = self._begin_part(item, name, at)
            self.last_text = item.texts.setdefault((name, at), [])
            self.last_text.append(text)
            item.open_texts.add((name, at))
        elif what == "done":
            if (name, at) in item.texts and (name, at) not in item.open_texts:
                return []
            if (name, at) not in item.texts:
                told = self._say(item, name, at, _text(fields, field))
            item.open_texts.discard((name, at))
        elif (part, at) not in item.parts:
            told = self._begin_part(item, name, at)
        return [*told, (kind, fields)]

    def _begin_part(self, item: _Item, name: str, at: int) -> list[Told]:
        _, part, place, kind, field = _TEXTS[name]
        if (part, at) in item.parts:
            return []
        item.parts.add((part, at))
        item.open_parts.add((part, at))
        blank = {"type": kind, field: "", **(_EMPTY if kind == "output_text" else {})}
        return [item.event(f"{part}.added", **{place: at}, part=blank)]

    def _say(self, item: _Item, name: str, at: int, text: str) -> list[Told]:
        told = self._begin_part(item, name, at)
        item.texts[name, at] = [text]
        item.open_texts.add((name, at))
        return [*told, item.event(f"{name}.delta", **{_TEXTS[name][2]: at}, delta=text)]

    def _rest(self, item: _Item, final: Fields) -> list[Told]:
        """Return the texts of an item that were not said before."""
        told: list[Told] = []
        for field in ("content", "summary"):
            for at, part in enumerate(_parts_of(final, field)):
                name = _OF_PART.get(_text(part, "type"))
                if name is None or (name, at) in item.texts:
                    continue
                if text := _text(part, _TEXTS[name][4]):
                    told += self._say(item, name, at, text)
        return told

    def _end_text(self, item: _Item, name: str, at: int) -> list[Told]:
        _, _, place, _, field = _TEXTS[name]
        item.open_texts.discard((name, at))
        text = {place: at, field: "".join(item.texts[name, at])}
        more = {"logprobs": ()} if name == "response.output_text" else {}
        return [item.event(f"{name}.done", **text, **more)]

    def _end_part(self, item: _Item, part: str, at: int, given: Sequence[Fields]) -> Told:
        item.open_parts.discard((part, at))
        own = (name for name in _OF_PLACE[part] if (name, at) in item.texts)
        said = self._part(item, next(own, "response.output_text"), at)
        whole = given[at] if at < len(given) else said
        return item.event(f"{part}.done", **{_PLACES[part][1]: at}, part=whole)

    def _part(self, item: _Item, name: str, at: int) -> dict[str, object]:
        _, _, _, kind, field = _TEXTS[name]
        text = "".join(item.texts.get((name, at), ()))
        return {"type": kind, field: text, **(_EMPTY if kind == "output_text" else {})}


_CONTENT: Final = frozenset({"content", "summary", "arguments"})
