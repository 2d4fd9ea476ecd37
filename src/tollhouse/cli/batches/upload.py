"""The body of a batch, made from a file: checked as a whole, then sent piece by piece.

    JSON Lines                    {"endpoint": ..., "model": ..., "requests":[ line , line ]}
    a whole batch as JSON         as it is

Which of the two a file is, the name of its first field says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.batches.ingest.splitter import Malformed, Splitter, TooLarge
from tollhouse.cli.batches.lines import BadLine, read_line
from tollhouse.cli.batches.source import beginning_of, lines_of, pieces_of, shown, size_of
from tollhouse.cli.batches.survey import Wishes, survey
from tollhouse.cli.failures import CommandFailed
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

_PIECE: Final = 64 * 1024
_LARGEST_ITEM: Final = 64 * 1024 * 1024
"""The server knows how large an item may be; this bounds our own memory."""
_FIRST_FIELD: Final = re.compile(rb'\s*\{\s*"([^"\\]{0,64})"')
_WHOLE: Final = frozenset(
    (b"endpoint", b"model", b"requests", b"completion_window", b"provider", b"callback_url")
)
_ARRAY: Final = b"["
_END: Final = b"]}"


@dataclass(frozen=True, slots=True)
class Upload:
    """A body that is ready to be sent."""

    size: int
    """In bytes."""
    pieces: Callable[[], Iterator[bytes]]
    """All of it; raises CommandFailed where the file is not any more what it was."""


def read_upload(file: BinaryIO, name: str, wishes: Wishes) -> Upload:
    """Check a file of requests.

    Args:
        file: It can be sought, and stays open until all is sent.
        name: As it was given.
        wishes: What the command line says.

    Raises:
        StartError: It is no batch, or contradicts the command line. A text line for each mistake.
    """
    start = beginning_of(file)
    if start.lstrip().startswith(_ARRAY):
        message = (
            f"{shown(name)} is a JSON array: write one request a line, without brackets and "
            "commas; jq -c '.[]' does it"
        )
        raise StartError(message)
    field = _FIRST_FIELD.match(start)
    if field is not None and field[1] in _WHOLE:
        return _whole(file, shown(name), wishes)
    return _of_lines(file, shown(name), wishes)


def _of_lines(file: BinaryIO, name: str, wishes: Wishes) -> Upload:
    found = survey(name, lines_of(file), wishes)
    head = msgspec.json.encode(wishes.envelope(found)).removesuffix(b"}") + b',"requests":['
    size = len(head) + found.size + found.count - 1 + len(_END)

    return Upload(size, lambda: _exactly(size, _gathered(_body(head, file, name)), name))


def _body(head: bytes, file: BinaryIO, name: str) -> Iterator[bytes]:
    before = head
    try:
        for _, text in lines_of(file):
            yield before
            yield read_line(text).item
            before = b","
    except BadLine:
        raise _changed(name) from None
    yield _END


def _whole(file: BinaryIO, name: str, wishes: Wishes) -> Upload:
    if wishes != Wishes():
        message = (
            f"{name} is a whole batch, which says its model, endpoint and provider itself: leave "
            "out --model, --endpoint, --provider and --no-fallbacks"
        )
        raise StartError(message)
    try:
        _check_whole(pieces_of(file))
    except (Malformed, TooLarge) as error:
        message = (
            f"{name} is taken for a whole batch, since it begins with a field of one: {error}. "
            'In JSON Lines each line is {"custom_id": ..., "body": {...}}'
        )
        raise StartError(message) from None
    size = size_of(file)
    return Upload(size, lambda: _exactly(size, pieces_of(file), name))


def _check_whole(pieces: Iterable[bytes]) -> None:
    """Read a whole batch as the server will.

    Raises:
        Malformed: It is none.
        TooLarge: A part of it is.
    """
    splitter = Splitter(largest_body=_LARGEST_ITEM)
    places: dict[str, int] = {}
    for piece in pieces:
        for item in splitter.feed(piece):
            _check_id(item.custom_id, item.number, places)
    for item in splitter.end():
        _check_id(item.custom_id, item.number, places)
    if not places:
        raise Malformed("requests: has to have at least one item")


def _check_id(custom_id: str, number: int, places: dict[str, int]) -> None:
    place = f"requests[{number}].custom_id"
    if not custom_id:
        raise Malformed(f"{place}: is empty")
    first = places.setdefault(custom_id, number)
    if first != number:
        raise Malformed(f"{place}: the same as requests[{first}]'s")


def _gathered(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Join small texts, so that a request of 50,000 lines is not sent in 100,000 pieces."""
    gathered = bytearray()
    for text in texts:
        gathered += text
        if len(gathered) >= _PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _exactly(size: int, pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Pass pieces on that are as large together as they have to be.

    Raises:
        CommandFailed: They are not.
    """
    sent = 0
    for piece in pieces:
        sent += len(piece)
        if sent > size:
            raise _changed(name)
        yield piece
    if sent != size:
        raise _changed(name)


def _changed(name: str) -> CommandFailed:
    return CommandFailed(f"{name} changed while it was sent: no batch was made, try again")
