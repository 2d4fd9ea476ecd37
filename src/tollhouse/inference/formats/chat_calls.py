"""Which tool call a piece of a chat stream belongs to: one rule for all servers. Pure.

OpenAI's reference: the index identifies a call, its id and its name come once. Servers leave out
the index, the id or the name, send null or "" in their place, repeat them with every piece, give
all calls one index or one id, and send names late or in pieces. What holds for all of them:

    missing, null and empty are alike; so is an index below 0
    a call begins with an id that is new, with a name after complete arguments, or with a name at
    an index that is new
    everything else goes on with the call of that id, of that index, or else with the last one:
    a new id without a name, too, at the index of a call whose arguments are not complete
    a new id with the same name, too, while its arguments are not complete
    an id may be a number, an index a text or a fraction
    name and arguments may stand in the call itself, without `function`, and one call alone
    without a list

Sources: https://platform.openai.com/docs/api-reference/chat-streaming and the issues of clients:
langchain (pieces with empty ids of DashScope and SiliconFlow), LibreChat (Ollama sends calls
without an index), spring-ai (names repeated as empty texts), vLLM (a random id with every piece).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.tools import Arguments, arguments_text, whole_arguments
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    fields_decoder,
    raw,
    text_bytes,
    try_decode,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Function(Struct):
    """What is called."""

    name: str | None = None
    arguments: Raw = NULL
    parameters: Raw = NULL
    """What Llama's servers call the arguments."""
    input: Raw = NULL
    """What Anthropic calls them."""
    extra_content: Raw = NULL
    """What only its maker can read, as Google's servers send it."""
    provider_specific_fields: Raw = NULL
    """The same, as LiteLLM sends it."""
    thought_signature: Raw = NULL

    @property
    def beside(self) -> dict[str, Raw]:
        """The fields that only its maker can read."""
        given = (self.extra_content, self.provider_specific_fields, self.thought_signature)
        if given == _NOTHING_BESIDE:
            return {}
        named = zip(_OF_MAKER, given, strict=True)
        return {name: value for name, value in named if value != NULL}

    @property
    def given(self) -> Raw | None:
        """The arguments, whatever they are called."""
        names = (self.arguments, self.parameters, self.input)
        return next((each for each in names if each != NULL), None)


class CallPiece(Function):
    """A piece of a call, or a whole one, as a server sends it."""

    index: bool | int | float | str | None = None
    id: str | int | None = None
    type: str | None = None
    function: Function | None = None

    @property
    def extra(self) -> Fields:
        """What only its maker can read, in the call and in its function."""
        own = self.beside
        within = {} if self.function is None else self.function.beside
        return {**own, "function": raw(within)} if within else own

    @property
    def place(self) -> int | None:
        """The index as a number; None if there is none."""
        index = self.index
        if isinstance(index, str):
            index = int(index) if index.isdecimal() and len(index) <= _LONGEST_INDEX else None
        return int(index) if index is not None and 0 <= index <= _LAST_INDEX else None

    @property
    def own_id(self) -> str:
        """The id as a text; empty if there is none."""
        return "" if self.id is None else str(self.id)

    @property
    def called(self) -> str:
        """The name; empty if this piece has none."""
        return (self.function and self.function.name) or self.name or ""

    @property
    def text(self) -> str:
        """The text of the arguments."""
        return arguments_text((self.function and self.function.given) or self.given or NULL)


_OF_MAKER: Final = ("extra_content", "provider_specific_fields", "thought_signature")
_NOTHING_BESIDE: Final = (NULL, NULL, NULL)
_FLAT: Final = frozenset({"name", "arguments", "parameters", "input"})
"""What some servers write in a call, without a `function`."""
_LONGEST_INDEX: Final = 9
_LAST_INDEX: Final = 10**_LONGEST_INDEX
Pieces = list[CallPiece | None] | CallPiece | None
"""What stands in `tool_calls`."""
_list: Final = msgspec.json.Decoder(list[CallPiece])
_pieces: Final = msgspec.json.Decoder(Pieces)
_Items = list[Fields | None] | Fields | None
_items: Final = msgspec.json.Decoder(_Items)
_function: Final = msgspec.json.Decoder(Function | None)
_NO_CALLS: Final = (NULL, Raw(b"[]"))


def pieces_in(calls: Pieces, function_call: Function | None) -> list[CallPiece]:
    """Return the pieces in `tool_calls`, or else the call of the format's first way."""
    if calls:
        found = [each for each in calls if each] if isinstance(calls, list) else [calls]
        if found:
            return found
    return [] if function_call is None else [CallPiece(function=function_call)]


class _Text(Struct):
    name: str | None = None
    arguments: str | None = None


class _TextCall(Struct):
    function: _Text | None = None


_texts: Final = msgspec.json.Decoder(list[_TextCall])


class Called(Struct):
    """The calls of a message, or their pieces in a delta, not decoded."""

    tool_calls: Raw = NULL
    """Not `Raw | None`, which the decoder takes for null only."""
    function_call: Raw = NULL
    """The format's first way to call, of one call."""

    @property
    def calls(self) -> bool:
        """Whether there is a tool call, or a part of one."""
        return self.tool_calls not in _NO_CALLS or self.function_call != NULL

    @property
    def called_bytes(self) -> int:
        """The bytes of names and arguments, without the JSON around them."""
        size = 0 if self.function_call == NULL else len(self.function_call)
        if self.tool_calls == NULL:
            return size
        calls = try_decode(_texts, self.tool_calls)
        if calls is None:
            return size + len(self.tool_calls)
        said = (call.function for call in calls if call.function is not None)
        return size + sum(text_bytes(f"{each.name or ''}{each.arguments or ''}") for each in said)

    def pieces(self) -> tuple[list[CallPiece], bool]:
        """Return the pieces, and whether they stand in a list; none if they cannot be read."""
        if self.tool_calls == NULL:
            legacy = try_decode(_function, self.function_call)
            return pieces_in(None, legacy), legacy is None
        if (usual := try_decode(_list, self.tool_calls)) is not None:
            return usual, True
        found: Pieces = try_decode(_pieces, self.tool_calls)
        return pieces_in(found, None), found is None

    def items(self) -> list[Fields]:
        """Return the fields of each piece; of a call in the first way there are none to keep."""
        if self.tool_calls == NULL:
            return [{}]
        found: _Items = _items.decode(self.tool_calls)
        several = found if isinstance(found, list) else [found]
        return [each for each in several if each is not None]

    def whole(self) -> Raw:
        """Return the calls of a whole reply, each with its own id and its arguments as text."""
        pieces, usual = self.pieces()
        parts = whole_calls(pieces)
        if usual and all(map(_is_regular, pieces, parts)):
            return self.tool_calls
        return raw([_written(*each) for each in zip(self.items(), parts, strict=True)])


class CallPart(NamedTuple):
    """A piece in order: the first one of a call has its id and its name, and no other has."""

    number: int
    id: str | None
    name: str | None
    arguments: str
    call_id: str
    """The id that its call began with."""
    extra: Fields | None = None

    def rendered(self) -> dict[str, object]:
        """Return it as an item of a delta's `tool_calls`."""
        return {"index": self.number, **render_call(self.id, self.name, self.arguments, self.extra)}


def render_call(
    call_id: str | None, name: str | None, arguments: str, extra: Fields | None = None
) -> dict[str, object]:
    """Return an item of `tool_calls`, with what its maker put beside it and into its function.

    Without an id it is more of a call's arguments.
    """
    head, function = {"id": call_id, "type": "function"}, {"name": name, "arguments": arguments}
    if call_id is None:
        head, function = {}, {"arguments": arguments}
    if not extra:
        return {**head, "function": function}
    within = fields_decoder.decode(extra["function"]) if "function" in extra else {}
    return {**head, **extra, "function": {**within, **function}}


@dataclass(slots=True, eq=False, repr=False)
class _Call:
    """One call so far."""

    number: int = -1
    """Its place among those that were shown."""
    id: str = ""
    name: str = ""
    arguments: Arguments = field(default_factory=Arguments)
    shown_id: str = ""
    """The id that it was shown with, once it was."""
    named_again: bool = False
    """Its name came once more after its end: a new call to the same function, perhaps."""
    held: list[str] = field(default_factory=list[str])
    """Arguments that came before its name."""
    extra: Fields = field(default_factory=dict[str, Raw])


class CallOrder:
    """Puts the pieces of one choice's calls in order."""

    def __init__(self, is_whole_name: Callable[[str], bool] = lambda _: False) -> None:
        """Hold back a name that may go on, until its arguments begin."""
        self._is_whole_name = is_whole_name
        self._calls: list[_Call] = []
        self._of_index: dict[int, _Call] = {}
        self._used_ids: set[str] = set()
        self._shown = 0

    def __bool__(self) -> bool:
        """Tell whether there is any call."""
        return bool(self._calls)

    @property
    def complete(self) -> bool:
        """Whether there are calls, and none of them is cut off."""
        return bool(self) and all(
            each.name and (each.arguments.complete or not each.arguments.begun)
            for each in self._calls
        )

    def read(self, pieces: Sequence[CallPiece]) -> Iterator[tuple[int | None, CallPart]]:
        """Return what the pieces of a delta say in order, each with its place in the delta.

        What was held back before has no place.
        """
        several = len(pieces) > 1
        for place, piece in enumerate(pieces):
            before = len(self._calls)
            call = self._of(piece, place if several else None)
            if 0 < before < len(self._calls):
                last = self._calls[before - 1]
                if last.name and not last.shown_id:  # its name is whole
                    yield None, self._begun(last)
            if (part := self._take(call, piece)) is not None:
                yield place, part

    def end(self) -> list[CallPart]:
        """Return what was held back, at the end of the choice."""
        parts: list[CallPart] = []
        for call in self._calls:
            rest = call.arguments.end()
            if not call.shown_id:
                call.held.append(rest)
                parts.append(self._begun(call))
            elif rest:
                parts.append(CallPart(call.number, None, None, rest, call.shown_id))
        return parts

    def rewritten(self, said: Called | None, *, ended: bool) -> list[Fields] | None:
        """Return the pieces of a delta as OpenAI would write them; None if they are like that.

        Where its choice `ended`, with what was held back.
        """
        pieces, usual = ([], True) if said is None else said.pieces()
        parts = list(self.read(pieces))
        held = self.end() if ended else []
        if not held and usual and _are_regular(pieces, parts):
            return None
        items = said.items() if said is not None and parts else []
        written = [_written({} if at is None else items[at], part) for at, part in parts]
        return [*written, *(_written({}, part) for part in held)]

    def _of(self, piece: CallPiece, place: int | None) -> _Call:
        """Return the call of a piece, which it may begin."""
        index = piece.place
        call = self._known(piece, index, place)
        if call is None:
            call = _Call()
            if self._calls and self._calls[-1].named_again and not piece.called:
                call.name = self._calls[-1].name
            self._calls.append(call)
        if index is not None:
            self._of_index[index] = call
        return call

    def _known(self, piece: CallPiece, index: int | None, place: int | None) -> _Call | None:
        """Return the call that a piece goes on with; None if it begins one."""
        if not self._calls:
            return None
        at = None if index is None else self._of_index.get(index)
        if index is not None and at is None and piece.called:
            return None
        if index is None and place is not None and not piece.own_id:
            # Of several pieces in one delta, none goes on with the one before.
            if place >= len(self._calls) or (place and piece.called):
                return None
            at = self._calls[place]
        last = at or self._calls[-1]
        own = piece.own_id
        if own and own != last.id:
            same = next((each for each in reversed(self._calls) if each.id == own), None)
            goes_on = self._goes_on(piece, last, alone=at is None)
            if same is None and not goes_on and (last.id or self._is_other(piece, last)):
                return None
            last = same or last
        elif index is not None and at is None and last.arguments.complete:
            return None
        return None if self._begins(piece, last) else last

    def _goes_on(self, piece: CallPiece, call: _Call, *, alone: bool) -> bool:
        """Tell whether a piece with an id of its own can only be more arguments of a call.

        `alone`: nothing but its place after the last one says whose it is.
        """
        if not call.name or not piece.text or call.arguments.complete:
            return False
        if piece.called and (piece.called != call.name or (alone and not call.arguments.begun)):
            return False
        begins = alone and piece.text.startswith("{")
        return not begins or call.arguments.says_again(piece.text)

    def _is_other(self, piece: CallPiece, last: _Call) -> bool:
        """Tell whether a piece with an id belongs to another call than one without."""
        if piece.called and last.name and piece.called != last.name:
            return True
        return last.arguments.complete and bool(piece.called or piece.text)

    def _begins(self, piece: CallPiece, last: _Call) -> bool:
        """Tell whether a piece begins another call after one that is complete."""
        name, text = piece.called, piece.text
        if not (name or (last.named_again and text)):
            return False
        if not last.name and not text:
            return False  # its name, which came last
        if not last.arguments.complete:
            # Some calls have no arguments: then only their names tell them apart.
            return (
                not last.arguments.begun
                and name != last.name
                and self._is_whole_name(last.name)
                and self._is_whole_name(name)
            )
        if name and name != last.name:
            return True
        repeats = bool(piece.own_id) and piece.own_id == last.id
        if not text.strip():
            # Perhaps it only repeats the name; the arguments of another call would tell.
            last.named_again = not repeats
            return False
        same_place = not piece.own_id and piece.place is not None
        return not ((repeats or same_place) and last.arguments.says_again(text))

    def _take(self, call: _Call, piece: CallPiece) -> CallPart | None:
        name = piece.called
        call.id = call.id or piece.own_id
        if name and not call.shown_id and not (call.arguments.begun and call.name):
            # A name in pieces, or repeated, or longer each time.
            grows = name.startswith(call.name)
            call.name = name if grows else call.name + name
        text = call.arguments.add(piece.text)
        extra = piece.extra
        if call.shown_id:
            if not text and not extra:
                return None
            return CallPart(call.number, None, None, text, call.shown_id, extra)
        call.held.append(text)
        call.extra = extra or call.extra
        if call.name and (call.arguments.begun or self._is_whole_name(call.name)):
            return self._begun(call)
        return None

    def _begun(self, call: _Call) -> CallPart:
        call.number = self._shown
        self._shown += 1
        call.shown_id = own = _own_id(call.id, call.number, self._used_ids)
        text = "".join(call.held)
        return CallPart(call.number, own, call.name, text, own, call.extra)


def whole_calls(pieces: Sequence[CallPiece]) -> list[CallPart]:
    """Return the calls of a whole reply, each with an id of its own."""
    found: list[CallPart] = []
    used: set[str] = set()
    for number, piece in enumerate(pieces):
        own = _own_id(piece.own_id, number, used)
        text = whole_arguments(piece.text)
        found.append(CallPart(number, own, piece.called, text, own, piece.extra))
    return found


def _own_id(given: str, number: int, used: set[str]) -> str:
    """Return the id of a call that no other has."""
    own = given or f"call_{number}"
    own = f"{own}_{number}" if own in used else own
    used.add(own)
    return own


def names_in(tools: Raw) -> Callable[[str], bool]:
    """Return a function that tells whether a request's tools have one of a name."""
    return lambda name: encoder.encode(name) in bytes(tools)


def _written(item: Fields, part: CallPart) -> Fields:
    """Return a piece in order, with what else the provider wrote of it; of a whole call, too."""
    own = {name: raw(value) for name, value in part.rendered().items()}
    return without(item, _FLAT) | own


def _are_regular(pieces: Sequence[CallPiece], parts: Sequence[tuple[int | None, CallPart]]) -> bool:
    """Tell whether pieces are already written as OpenAI writes them, so that parts say no more."""
    return len(pieces) == len(parts) and all(
        piece.index == part.number and _is_regular(piece, part)
        for piece, (_, part) in zip(pieces, parts, strict=True)
    )


def _is_regular(piece: CallPiece, part: CallPart) -> bool:
    """Tell whether a call, or a piece of one, is written as OpenAI writes it, index or not."""
    function = piece.function
    if function is None or piece.id != part.id:
        return False
    if part.id is not None and piece.type != "function":
        return False
    is_text = memoryview(function.arguments)[0] == ord('"')
    return is_text and function.name == part.name and piece.text == part.arguments
