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

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.tools import Arguments, arguments_text
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
NOT_OF_TYPE: Final = "an event of the stream is not what its type promises"

_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"
_ARGUMENTS: Final = "response.function_call_arguments"
_PART: Final = "response.content_part"
_SUMMARY: Final = "response.reasoning_summary_part"


class _Text(NamedTuple):
    """Where a text stands, and what its part is."""

    item: str
    around: str
    """How the types of the events of its part begin."""
    place: str
    kind: str
    field: str

    def part(self, text: str) -> dict[str, object]:
        more = {"annotations": (), "logprobs": ()} if self.kind == "output_text" else {}
        return {"type": self.kind, self.field: text, **more}


_SPOKEN: Final = "response.output_text"
_TEXTS: Final[Mapping[str, _Text]] = {
    _SPOKEN: _Text("message", _PART, "content_index", "output_text", "text"),
    "response.refusal": _Text("message", _PART, "content_index", "refusal", "refusal"),
    "response.reasoning_text": _Text("reasoning", _PART, "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text": _Text(
        "reasoning", _SUMMARY, "summary_index", "summary_text", "text"
    ),
}
_OF_KIND: Final = {text.kind: name for name, text in _TEXTS.items()}
_PLACES: Final = {_PART: ("content", "content_index"), _SUMMARY: ("summary", "summary_index")}
"""Of each part: where an item has it, and the name of its place there."""
_INSIDE: Final = (_PART, _SUMMARY, _ARGUMENTS, "response.custom_tool_call_input", *_TEXTS)
ITEM_EVENTS: Final = (_ADDED, _DONE, *_INSIDE)
"""How the types of all events begin that are put in order."""
_PREFIXES: Final = {"function_call": "fc", "message": "msg"}
_LISTS: Final = ("content", "summary")
_CONTENT: Final = frozenset({*_LISTS, "arguments"})
_NONE: Final = Raw(b"[]")
_BLANK: Final[Mapping[str, Fields]] = {
    "message": {
        "type": raw("message"),
        "role": raw("assistant"),
        "content": _NONE,
        "status": raw("in_progress"),
    },
    "reasoning": {"type": raw("reasoning"), "summary": _NONE},
}
"""Items that nothing but their content begins."""
_number = msgspec.json.Decoder(int | None)
_parts = msgspec.json.Decoder(list[Fields] | None)


def _parts_of(fields: Fields, name: str) -> Sequence[Fields]:
    return try_decode(_parts, fields.get(name, NULL)) or ()


def _text(fields: Fields, name: str) -> str:
    return try_decode(text_decoder, fields.get(name, NULL)) or ""


def _index(fields: Fields, name: str) -> int | None:
    return _number.decode(fields.get(name, NULL))


def _whole_item(item: Fields, number: int) -> Fields:
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
    """Return items with ids, and their calls with arguments as texts and ids that differ."""
    calls: set[str] = set()
    return [_own_call(_whole_item(each, at), at, calls) for at, each in enumerate(items)]


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
    found = [(kind, name, own) for name in ("call_id", "id") if (own := _text(item, name))]
    return found or [(kind, "", "")]


class _Item:
    """An item that has begun: what was said of it, and what is open."""

    def __init__(self, number: int, item: Fields) -> None:
        self.item = item
        """As it was shown last."""
        self.kind = _text(item, "type")
        self.id = item.get("id", NULL)
        self.number = number
        self.place = {"output_index": raw(number)}
        self.done = False
        self.last_text: list[str] = []
        self._arguments = Arguments()
        self._arguments_done = False
        self._texts: dict[tuple[str, int], list[str]] = {}
        self._open_texts: set[tuple[str, int]] = set()
        self._parts: set[tuple[str, int]] = set()
        self._open_parts: set[tuple[str, int]] = set()

    def event(self, kind: str, **fields: object) -> Told:
        at = self.place if self.id == NULL else {**self.place, "item_id": self.id}
        return kind, at | {name: raw(value) for name, value in fields.items()}

    def take(self, kind: str, fields: Fields) -> list[Told]:
        """Return what the client gets of an event within the item."""
        name, _, what = kind.rpartition(".")
        misplaced = fields.get("output_index") != self.place["output_index"]
        if misplaced or (self.id != NULL and fields.get("item_id") != self.id):
            fields = {**fields, **self.event(kind)[1]}
        if name == _ARGUMENTS:
            return self._take_arguments(what, kind, fields)
        if name in _PLACES:
            return self._take_part(name, what, kind, fields)
        return self._take_text(name, what, kind, fields) if name in _TEXTS else [(kind, fields)]

    def close(self, final: Fields) -> list[Told]:
        """Return what ends the item, and what was not said of it before."""
        told = self._end_arguments(final) if self.kind == "function_call" else []
        told += self._rest(final)
        told += [self._end_text(*each) for each in sorted(self._open_texts)]
        given = {part: _parts_of(final, field) for part, (field, _) in _PLACES.items()}
        told += [self._end_part(*each, given[each[0]]) for each in sorted(self._open_parts)]
        self.item, self.done = self.filled(final), True
        return [*told, (_DONE, {**self.place, "item": raw(self.item)})]

    def filled(self, final: Fields) -> Fields:
        """Return the item with its id, and with what was said of it where it is empty."""
        final = {**final, "id": self.id} if self.id != NULL else final
        if self.kind == "function_call":
            call = self.item.get("call_id", NULL)
            return {**final, "call_id": call, "arguments": raw(self._arguments.text)}
        if self.kind == "message" and not _parts_of(final, "content"):
            said = [_TEXTS[name].part(self._said(name, at)) for name, at in sorted(self._texts)]
            return {**final, "content": raw(said)}
        return final

    def _said(self, name: str, at: int) -> str:
        return "".join(self._texts.get((name, at), ()))

    def _take_arguments(self, what: str, kind: str, fields: Fields) -> list[Told]:
        if what == "delta":
            given = arguments_text(fields.get("delta", NULL))
            text = self._arguments.add(given)
            if not text:
                return []
            same = memoryview(fields["delta"])[0] == ord('"') and text == given
            return [(kind, fields if same else {**fields, "delta": raw(text)})]
        told = self._end_arguments(fields)
        return [*told[:-1], (kind, {**fields, **told[-1][1]})] if told else []

    def _end_arguments(self, final: Fields) -> list[Told]:
        if self._arguments_done:
            return []
        self._arguments_done = True
        whole = arguments_text(final.get("arguments", NULL)) or _text(self.item, "arguments")
        more = "" if self._arguments.begun else self._arguments.add(whole)
        more += self._arguments.end()
        told = [self.event(f"{_ARGUMENTS}.delta", delta=more)] if more else []
        name = final.get("name", self.item.get("name", raw("")))
        done = self.event(f"{_ARGUMENTS}.done", arguments=self._arguments.text, name=name)
        return [*told, done]

    def _take_part(self, part: str, what: str, kind: str, fields: Fields) -> list[Told]:
        at = _index(fields, _PLACES[part][1]) or 0
        if what == "added":
            return [(kind, fields)] if self._is_new_part(part, at) else []
        if (part, at) not in self._open_parts:
            return []
        self._open_parts.discard((part, at))
        texts = [name for name in self._texts_in(part, at) if (name, at) in self._open_texts]
        return [*(self._end_text(name, at) for name in texts), (kind, fields)]

    def _is_new_part(self, part: str, at: int) -> bool:
        """Return whether a part was not there, which is open from now on."""
        if (part, at) in self._parts:
            return False
        self._parts.add((part, at))
        self._open_parts.add((part, at))
        return True

    def _texts_in(self, part: str, at: int) -> list[str]:
        return [
            name
            for name, text in _TEXTS.items()
            if text.around == part and (name, at) in self._texts
        ]

    def _end_part(self, part: str, at: int, given: Sequence[Fields]) -> Told:
        self._open_parts.discard((part, at))
        name = next(iter(self._texts_in(part, at)), _SPOKEN)
        whole = given[at] if at < len(given) else _TEXTS[name].part(self._said(name, at))
        return self.event(f"{part}.done", **{_PLACES[part][1]: at}, part=whole)

    def _take_text(self, name: str, what: str, kind: str, fields: Fields) -> list[Told]:
        place = _TEXTS[name].place
        at = _index(fields, place) or 0
        told: list[Told] = []
        if place not in fields:
            fields = {**fields, place: raw(at)}
        if what == "delta":
            text = try_decode(text_decoder, fields.get("delta", NULL))
            if text is None:
                return []
            told = self._begin_text(name, at)
            self.last_text.append(text)
        elif what == "done":
            if (name, at) not in self._texts:
                told = self._say(name, at, _text(fields, _TEXTS[name].field))
            elif (name, at) not in self._open_texts:
                return []
            self._open_texts.discard((name, at))
        else:
            told = self._begin_part(name, at)
        return [*told, (kind, fields)]

    def _begin_part(self, name: str, at: int) -> list[Told]:
        text = _TEXTS[name]
        if not self._is_new_part(text.around, at):
            return []
        return [self.event(f"{text.around}.added", **{text.place: at}, part=text.part(""))]

    def _begin_text(self, name: str, at: int) -> list[Told]:
        self.last_text = self._texts.setdefault((name, at), [])
        self._open_texts.add((name, at))
        return self._begin_part(name, at)

    def _say(self, name: str, at: int, text: str) -> list[Told]:
        told = self._begin_text(name, at)
        self._texts[name, at].append(text)
        return [*told, self.event(f"{name}.delta", **{_TEXTS[name].place: at}, delta=text)]

    def _rest(self, final: Fields) -> list[Told]:
        """Return the texts of the item that were not said before."""
        told: list[Told] = []
        for field in _LISTS:
            for at, part in enumerate(_parts_of(final, field)):
                name = _OF_KIND.get(_text(part, "type"))
                if name is None or (name, at) in self._texts:
                    continue
                if text := _text(part, _TEXTS[name].field):
                    told += self._say(name, at, text)
        return told

    def _end_text(self, name: str, at: int) -> Told:
        self._open_texts.discard((name, at))
        text = {_TEXTS[name].place: at, _TEXTS[name].field: self._said(name, at)}
        more = {"logprobs": ()} if name == _SPOKEN else {}
        return self.event(f"{name}.done", **text, **more)


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
            raise MalformedResponse(NOT_OF_TYPE) from None

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
                told += item.close(item.item if own is None else own)
            elif own is not None:
                item.item = item.filled(own)
        for each in given:
            if id(each) not in shown:
                item, begun = self._begin(each, None)
                told += [*begun, *item.close(item.item | each)]
        return told, [each.item for each in self._items]

    def _find(self, fields: Fields, item_id: str, kind: str = "") -> _Item | None:
        found = self._of_id.get(item_id) or self._at.get(_index(fields, "output_index"))
        return found if found is None or kind in ("", found.kind) else None

    def _begin(self, item: Fields, given: int | None) -> tuple[_Item, list[Told]]:
        number = len(self._items)
        shown = _own_call(_whole_item(item, number), number, self._calls)
        begun = _Item(number, shown)
        if begun.kind == "function_call":
            begun.item = {**shown, "arguments": raw("")}
        self._items.append(begun)
        self._at[given] = self._at[None] = begun
        if own := _text(shown, "id"):
            self._of_id[own] = begun
        return begun, [(_ADDED, {**begun.place, "item": raw(begun.item)})]

    def _add(self, fields: Fields) -> list[Told]:
        item = fields_decoder.decode(fields["item"])
        if _text(item, "id") in self._of_id:
            return []
        given = _index(fields, "output_index")
        begun, [(kind, shown)] = self._begin(item, given)
        if begun.kind == "function_call":
            # Its arguments, if no others come.
            begun.item = _whole_item(item, begun.number) | {"call_id": begun.item["call_id"]}
        elif given == begun.number and begun.item == item:
            return [(kind, fields)]
        return [(kind, {**fields, **shown})]

    def _end(self, fields: Fields) -> list[Told]:
        item = fields_decoder.decode(fields["item"])
        kind, own_id = _text(item, "type"), _text(item, "id")
        known = self._find(fields, own_id, kind)
        if known is not None and known.done and own_id == _text(known.item, "id"):
            return []
        begun: list[Told] = []
        if known is None or known.done:
            blank = {name: each for name, each in item.items() if name not in _CONTENT}
            blank |= {name: _NONE for name in _LISTS if name in item}
            if kind == "function_call":
                blank["arguments"] = raw("")
            known, begun = self._begin(blank, _index(fields, "output_index"))
        *closed, (kind, ours) = known.close(_whole_item(item, known.number))
        return [*begun, *closed, (kind, {**fields, **ours})]

    def _inside(self, kind: str, fields: Fields) -> list[Told]:
        own_id = _text(fields, "item_id")
        item = self._find(fields, own_id)
        text = _TEXTS.get(kind.rpartition(".")[0])
        begun: list[Told] = []
        if item is None or (text is not None and item.kind != text.item):
            if text is None:
                return []  # the end of its item says all of it
            blank = {**_BLANK[text.item], **({"id": raw(own_id)} if own_id else {})}
            item, begun = self._begin(blank, _index(fields, "output_index"))
        if item.done:
            return begun
        told = [*begun, *item.take(kind, fields)]
        self.last_text = item.last_text
        return told
