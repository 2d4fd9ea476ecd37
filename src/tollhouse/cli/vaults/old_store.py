"""A file of secrets of an older store: a JSON object, or lines of NAME=VALUE. Pure.

No message repeats any of a line: what is no name may be part of a value.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME: Final = r"(?!.*__)[a-z]([a-z0-9_]*[a-z0-9])?"
LONGEST_NAME: Final = 255
LONGEST_VALUE: Final = 65_536
MOST: Final = 1_000
"""How many the server takes at once."""
_MOST_MISTAKES: Final = 20
_NOT_IN_A_HEADER: Final = re.compile(r"[\r\n\0]")
_NO_NAME: Final = (
    "is no name: lower-case letters, digits and single underscores, a letter first and no "
    "underscore last"
)


class Entry(NamedTuple):
    """What stands in one place of the file."""

    place: str
    name: str
    value: Any


def read_secrets(text: str, file: str) -> list[dict[str, str]]:
    """Return the secrets of a file, as the server wants them.

    Args:
        text: A JSON object of names and values; or NAME=VALUE in each line, the value as it
            stands. Empty lines and those that begin with # are skipped.
        file: What it is called in messages.

    Raises:
        StartError: There is something else in it, a line for each mistake; or nothing.
    """
    text = text.removeprefix("\ufeff")
    is_json = text.lstrip().startswith("{")
    entries = list(_in_object(text, file) if is_json else _in_lines(text, file))
    mistakes = [f"{each.place}: {what}" for each, what in _mistakes(entries)]
    if mistakes:
        left = len(mistakes) - _MOST_MISTAKES
        more = [f"and {left} more mistakes"] if left > 0 else []
        raise StartError("\n".join([*mistakes[:_MOST_MISTAKES], *more]))
    if not 1 <= len(entries) <= MOST:
        message = f"{file} holds {len(entries)} secrets, and an import has 1 to {MOST}"
        raise StartError(message)
    return [{"name": each.name, "value": each.value} for each in entries]


def _in_object(text: str, file: str) -> Iterator[Entry]:
    try:
        # As pairs: a name that comes twice would be lost in a dictionary.
        pairs = cast("Sequence[tuple[str, Any]]", json.loads(text, object_pairs_hook=list))
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        message = f"{file} begins like a JSON object and is none{where}"
        raise StartError(message) from None
    for number, (name, value) in enumerate(pairs, 1):
        yield Entry(f"{file}: entry {number}", name, value)


def _in_lines(text: str, file: str) -> Iterator[Entry]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, equals, value = line.removesuffix("\r").partition("=")
            yield Entry(f"{file}:{number}", name.strip(), value if equals else None)


def _mistakes(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
    places: dict[str, str] = {}
    for each in entries:
        mistake = _mistake(each)
        if mistake is None and each.name in places:
            mistake = f"{each.name} stands in {places[each.name]} already"
        if mistake is not None:
            yield each, mistake
        places.setdefault(each.name, each.place)


def _mistake(entry: Entry) -> str | None:
    if entry.value is None:
        return "has no value: write NAME=VALUE"
    if len(entry.name) > LONGEST_NAME or not re.fullmatch(NAME, entry.name):
        return f"what stands for the name {_NO_NAME}"
    if not isinstance(entry.value, str):
        return "the value is no text"
    if not 1 <= len(entry.value) <= LONGEST_VALUE:
        return f"the value must have 1 to {LONGEST_VALUE} characters"
    if _NOT_IN_A_HEADER.search(entry.value):
        return "the value has a line break or U+0000, which no header can carry"
    return None if is_unicode(entry.value) else "the value is no valid Unicode"


def is_unicode(text: str) -> bool:
    """Tell whether a text can be sent at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
