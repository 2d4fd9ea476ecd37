"""The splitter: the body of a batch, in pieces of any size, becomes its envelope and its items.

    {"endpoint": ..., "requests": [{"custom_id": ..., "body": {...}}, ...], "model": ...}
     envelope                      items, as they come                      envelope

Fields come in any order, and their values are read one by one. In `requests`, once a window of
bytes has gathered, a cut between two items is guessed from the end and everything before it is
strictly decoded as one array. If that succeeds the cut is right: a list of whole values leaves no
bracket and no string open. If not, the items of this window are read one by one, which also finds
the one at fault. Where a value ends is looked for in the bytes taken for Latin-1, since all that
structures JSON is ASCII; msgspec decodes the bytes themselves, so nothing passes that is no JSON.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tollhouse.kernel.errors import parse_validation_error
from tollhouse.kernel.json_text import replace_lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

WINDOW: Final = 256 * 1024
"""Bytes that gather before items are cut off them; no more than a processor's cache takes."""
LARGEST_ENVELOPE: Final = 1024 * 1024
"""Bytes of all fields beside the items."""
_BESIDE_A_BODY: Final = 1024 * 1024
"""Bytes of an item beside its body; no more are kept to find out what is too large in it."""
ITEMS: Final = "requests"
_FINDS: Final = 32
"""Places that are looked at for a cut in one window."""
_GLANCES: Final = (16 * 1024, 256 * 1024)
"""Bytes in which a value's end is looked for before all that there are are taken."""
_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_OPENING: Final = re.compile(rb'\{[ \t\n\r]*("[^"\\]{0,64}")')
"""An item's brace and the name of its first field."""
_BORDER: Final = re.compile(rb"\}[ \t\n\r]*,[ \t\n\r]*\{[ \t\n\r]*\Z")
"""What is between two items, up to the name of the latter's first field."""
_LONGEST_BORDER: Final = 256
_BRACE: Final = ord("{")
_AFTER_A_VALUE: Final = (",", "]", "}", ":", " ", "\t", "\n", "\r")
_CUT_OFF: Final = 16
"""Bytes before the end in which an error may only mean that there is more to come."""


class SubmittedItem(NamedTuple):
    """One request of a batch."""

    number: int
    custom_id: str
    body: bytes
    """A JSON object, as it came."""


class MalformedBatch(Exception):
    """The body is no batch; the text says where."""


class TooLarge(Exception):
    """A part of the body passes its limit; the text says which."""


class _Item(msgspec.Struct):
    custom_id: str
    body: msgspec.Raw


def _ignore(_digits: str) -> None:
    """Take a number for nothing: how large it is does not matter here."""


_end_of = json.JSONDecoder(parse_int=_ignore, parse_float=_ignore).raw_decode
_MENDED = "\N{REPLACEMENT CHARACTER}"
_read_item = msgspec.json.Decoder(_Item).decode
_read_items = msgspec.json.Decoder(list[_Item]).decode
_read_name = msgspec.json.Decoder(str).decode
_read_any = msgspec.json.Decoder(msgspec.Raw).decode


class Splitter:
    """Takes the body piece by piece, gives its items as they come, and at the end its envelope."""

    def __init__(self, *, largest_body: int, window: int = WINDOW) -> None:
        """Start before the first byte; `largest_body` is in bytes, of an item's `body`."""
        self._largest_body = largest_body
        self._window = window
        self._buffer = bytearray()
        self._dropped = 0
        """Bytes that came before those in the buffer."""
        self._ended = False
        self._found: list[SubmittedItem] = []
        self.envelope: dict[str, bytes] = {}
        """The fields beside the items, so far: name -> JSON."""
        self._fields_size = 0
        self._steps = self._document()
        self.count = 0

    def feed(self, data: bytes) -> Sequence[SubmittedItem]:
        """Take the next piece; return the items that are whole now.

        Raises:
            MalformedBatch: The body is no batch.
            TooLarge: An item or the envelope is.
        """
        self._buffer += data
        return self._advance()

    def end(self) -> Sequence[SubmittedItem]:
        """Say that nothing more comes; return the last items. Raises as `feed`."""
        self._ended = True
        return self._advance()

    def _advance(self) -> Sequence[SubmittedItem]:
        next(self._steps, None)
        found, self._found = self._found, []
        return found

    # The grammar. Each of these stops where it needs more bytes, and goes on when asked again

    def _document(self) -> Generator[None]:
        while len(self._buffer) < len(BOM_UTF8) and not self._ended:
            yield
        if self._buffer.startswith(BOM_UTF8):
            self._skip(len(BOM_UTF8))
        yield from self._mark(b"{", "the body has to be a JSON object")
        names: set[str] = set()
        closed = yield from self._closes(b"}")
        while not closed:
            name = yield from self._name()
            if name in names:
                raise MalformedBatch(f"{name}: stands twice in the body")
            names.add(name)
            if name == ITEMS:
                yield from self._array()
            else:
                self.envelope[name] = yield from self._field(name)
            closed = (yield from self._mark(b",}", f"{name}: no comma or brace follows")) == b"}"
        while not self._drop_space():
            if self._ended:
                return
            yield
        raise self._malformed("something follows the body's end")

    def _name(self) -> Generator[None, None, str]:
        text = yield from self._value("the name of a field", LARGEST_ENVELOPE)
        _check(text, "the name of a field")
        try:
            name = _read_name(text)
        except msgspec.MsgspecError:
            raise self._malformed("the name of a field has to be a string") from None
        yield from self._mark(b":", f"{name}: no colon follows")
        return name

    def _field(self, name: str) -> Generator[None, None, bytes]:
        text = yield from self._value(name, LARGEST_ENVELOPE)
        self._fields_size += len(text)
        if self._fields_size > LARGEST_ENVELOPE:
            raise TooLarge(f"the fields beside {ITEMS} have more than {LARGEST_ENVELOPE} bytes")
        _check(text, name)
        return text

    def _array(self) -> Generator[None]:
        yield from self._mark(b"[", f"{ITEMS}: has to be an array")
        closed = yield from self._closes(b"]")
        while not closed:
            while len(self._buffer) < self._window and not self._ended:
                yield
            if not self._cut():
                # At least one: where nothing is left, that finds the end of the body.
                closed = yield from self._one_by_one(self._dropped + max(1, len(self._buffer)))

    def _one_by_one(self, until: int) -> Generator[None, None, bool]:
        """Read items up to a byte of the body; tell whether the array ended."""
        while self._dropped < until:
            place = f"{ITEMS}[{self.count}]"
            text = yield from self._value(place, self._largest_body + _BESIDE_A_BODY)
            self._take(_item(text, place), place)
            mark = yield from self._mark(b",]", f"{place}: no comma or bracket follows")
            if mark == b"]":
                return True
        return False

    def _value(self, place: str, largest: int) -> Generator[None, None, bytes]:
        """Take one value, of any kind, which has to end in so many bytes."""
        while True:
            end = self._end_of_value(place) if self._drop_space() else None
            if end is not None:
                return self._drop(end)
            if self._ended:
                raise self._malformed(f"{place}: the body ends in the middle of it")
            if len(self._buffer) > largest:
                raise TooLarge(f"{place}: has more than {largest} bytes")
            # Half as much again before the next look, so that a long value takes linear time.
            wanted = min(len(self._buffer) * 3 // 2, largest + 1)
            yield
            while len(self._buffer) < wanted and not self._ended:
                yield

    def _mark(self, marks: bytes, otherwise: str) -> Generator[None, None, bytes]:
        """Take one of these characters; say what is wrong otherwise."""
        while not self._drop_space():
            if self._ended:
                raise self._malformed(f"{otherwise}, the body ends")
            yield
        if self._buffer[0] not in marks:
            raise self._malformed(otherwise)
        return self._drop(1)

    def _closes(self, mark: bytes) -> Generator[None, None, bool]:
        """Take this character if it is the next one; tell whether it was."""
        while not self._drop_space() and not self._ended:
            yield
        return self._buffer.startswith(mark) and bool(self._drop(1))

    # One step each, on what is in the buffer

    def _cut(self) -> bool:
        """Take all items before the last border that is found, if one is."""
        self._drop_space()
        for end, following in _borders(self._buffer):
            with memoryview(self._buffer) as buffer:
                window = b"".join((b"[", buffer[:end], b"]"))
            try:
                if not window.isascii():
                    window.decode()
                items = _read_items(window)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return False
            if not all(map(_has_object, items)):
                return False
            for item in items:
                self._take(item, f"{ITEMS}[{self.count}]")
            self._skip(following)
            return True
        return False

    def _take(self, item: _Item, place: str) -> None:
        body = bytes(item.body)
        if len(body) > self._largest_body:
            raise TooLarge(f"{place}.body: has {len(body)} bytes; {self._largest_body} are allowed")
        self._found.append(SubmittedItem(self.count, item.custom_id, body))
        self.count += 1

    def _end_of_value(self, place: str) -> int | None:
        """Return where the value ends with which the buffer begins; None where it is not whole."""
        size = len(self._buffer)
        for glance in (*_GLANCES, size):
            text = self._buffer[:glance].decode("latin-1")
            try:
                _, end = _end_of(text)
            except json.JSONDecodeError as error:
                if _is_certain(error, len(text)):
                    raise self._malformed(f"{place}: {error.msg}", error.pos) from None
            except RecursionError:
                raise self._malformed(f"{place}: nested too deeply") from None
            else:
                # A number may go on: 1 and 1. and 1e are read alike.
                is_whole = end < len(text) - _CUT_OFF or text[end:].startswith(_AFTER_A_VALUE)
                if is_whole or (self._ended and len(text) == size):
                    return end
            if glance >= size:
                break
        return None

    def _drop_space(self) -> bool:
        space = _SPACE.match(self._buffer)
        if space is not None and (length := space.end()):
            del space  # it holds the buffer, which must not shrink under it
            self._skip(length)
        return bool(self._buffer)

    def _drop(self, size: int) -> bytes:
        dropped = bytes(self._buffer[:size])
        self._skip(size)
        return dropped

    def _skip(self, size: int) -> None:
        del self._buffer[:size]
        self._dropped += size

    def _malformed(self, what: str, offset: int = 0) -> MalformedBatch:
        return MalformedBatch(f"{what} (byte {self._dropped + offset})")


def _borders(buffer: bytearray) -> Iterator[tuple[int, int]]:
    """Yield where an item ends and the next one begins, the last such place first."""
    opening = _OPENING.match(buffer)
    if opening is None:
        return
    name, first, end = opening[1], opening.end(), len(buffer)
    for _ in range(_FINDS):
        end = buffer.rfind(name, first, end)
        if end < 0:
            return
        begin = max(0, end - _LONGEST_BORDER)
        if border := _BORDER.search(buffer[begin:end]):
            yield begin + border.start() + 1, begin + border[0].rfind(b"{") + border.start()


def _item(text: bytes, place: str) -> _Item:
    mended = replace_lone_surrogates(text)
    _check(mended, place)
    try:
        item = _read_item(mended)
    except msgspec.ValidationError as error:
        path, what = parse_validation_error(error)
        raise MalformedBatch(f"{place}{path}: {what}") from None
    if not _has_object(item):
        raise MalformedBatch(f"{place}.body: has to be an object")
    if mended is not text and _MENDED in item.custom_id:
        raise MalformedBatch(f"{place}.custom_id: holds half of a character (a lone surrogate)")
    return item


def _has_object(item: _Item) -> bool:
    return memoryview(item.body)[0] == _BRACE


def _check(text: bytes, place: str) -> None:
    """Return if a text is JSON, or raise `MalformedBatch`."""
    try:
        text.decode()
        _read_any(text)
    except UnicodeDecodeError as error:
        raise MalformedBatch(f"{place}: not valid UTF-8 at its byte {error.start}") from None
    except RecursionError:
        raise MalformedBatch(f"{place}: nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise MalformedBatch(f"{place}: {error}") from None


def _is_certain(error: json.JSONDecodeError, size: int) -> bool:
    """Tell whether an error is one whatever comes after a text of so many characters."""
    of_a_string = error.msg.startswith(("Unterminated", "Invalid"))
    return error.pos < size - _CUT_OFF and not of_a_string
