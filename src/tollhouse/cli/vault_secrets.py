"""Secrets on the command line: warnings, how a value and a file of them is read.

A value is read from a place that other users of the machine cannot see:

    --value-file FILE     the file; - is standard input
    a terminal            a prompt that does not show what is typed
    anything else         standard input

It is never an argument, since the process list shows those. No message repeats any of a value, nor
of a line of an older store's file, where what is no name may be part of a value.
"""

import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from getpass import getpass
from math import log2
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from tollhouse.cli.values import is_unicode
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.redaction import SHORTEST
from tollhouse.kernel.secret import Secret

_FEWEST_BITS: Final = 40
_CONTENT: Final = "anybody can put content there"
_READ: Final = "it shows what is sent to it to whoever made the address"
_TUNNEL: Final = "it leads to any machine that somebody connects"
_REDIRECT: Final = "it sends requests on to other hosts"
_STORE: Final = "amazonaws.com"

_SUFFIXES: Final = {
    _CONTENT: (
        *("github.io", "githubusercontent.com", "gitlab.io", "pastebin.com"),
        *("storage.googleapis.com", "blob.core.windows.net", "r2.dev", "pages.dev"),
        *("workers.dev", "vercel.app", "netlify.app", "web.app", "herokuapp.com"),
    ),
    _READ: ("webhook.site", "requestbin.com", "requestbin.net", "pipedream.net", "beeceptor.com"),
    _TUNNEL: ("ngrok.io", "ngrok.app", "ngrok-free.app", "trycloudflare.com", "loca.lt"),
    _REDIRECT: ("bit.ly", "t.co", "tinyurl.com"),
}
_STANDARD_INPUT: Final = "-"
_MOST_BYTES: Final = 512 * 1024
"""More than any value has; what is longer is another file."""


def host_warning(host: str) -> str | None:
    """Return why a host is no one's to trust alone; None where the list knows nothing."""
    name = host.lower().removesuffix(".")
    if _is_bucket(name):
        return _CONTENT
    for reason, suffixes in _SUFFIXES.items():
        if any(name == suffix or name.endswith(f".{suffix}") for suffix in suffixes):
            return reason
    return None


def value_warning(value: str) -> str | None:
    """Return why a value is not well protected; None where nothing speaks against it."""
    if len(value.encode()) < SHORTEST:
        return f"with fewer than {SHORTEST} bytes it is not taken out of what hosts answer"
    counts = Counter(value).values()
    bits = sum(count * log2(len(value) / count) for count in counts)
    if bits < _FEWEST_BITS:
        return "it can be guessed, and where its letters stand by chance they are hidden as well"
    return None


def _is_bucket(name: str) -> bool:
    """Tell whether this is `s3.amazonaws.com`, a bucket below it, or one of a region."""
    if not name.endswith(f".{_STORE}"):
        return False
    labels = name.removesuffix(f".{_STORE}").split(".")
    return any(label == "s3" or label.startswith("s3-") for label in labels)


def read_value(file: str | None, name: str) -> Secret:
    """Return the value of a secret, without the end of its last line, or raise StartError.

    It is in the file, or standard input for `-`; without one it is asked for on a terminal.
    """
    if file is None and sys.stdin.isatty():
        value = _asked(name)
    else:
        value = text_in(file or _STANDARD_INPUT, _MOST_BYTES)
        if value.endswith("\n"):  # an editor or `echo` puts one end of a line there
            value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise StartError("the value is empty: nothing was stored")
    return Secret(value)


def text_in(file: str, most_bytes: int) -> str:
    """Return a file of secrets, or standard input for `-`, as text of at most so many bytes."""
    shown = "standard input" if file == _STANDARD_INPUT else file
    try:
        if file == _STANDARD_INPUT:
            raw: bytes = cast("Any", sys.stdin).buffer.read(most_bytes + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(most_bytes + 1)
    except OSError as error:
        raise StartError(f"{shown} cannot be read ({error.strerror})") from None
    if len(raw) > most_bytes:
        raise StartError(f"{shown} has more than {most_bytes} bytes: is it the right one?")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise StartError(f"{shown} is no UTF-8 text") from None


def _asked(name: str) -> str:
    try:
        with _interruptible():
            value = getpass(f"Value of {name} (not shown): ")
            value.encode()
            return value
    except EOFError:
        return ""
    except UnicodeError:
        raise StartError("what was typed is no text in the terminal's encoding") from None


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end the question at once; a running event loop only takes note of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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


class ImportEntry(NamedTuple):
    """What stands in one place of the file."""

    place: str
    name: str
    value: Any


def read_secrets(text: str, file: str) -> list[dict[str, str]]:
    """Return the secrets of a file, as the server wants them.

    It is a JSON object, or NAME=VALUE in each line, the value as it stands, but for empty lines and
    those that begin with #. StartError where there is something else in it, a line for each
    mistake.
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
        raise StartError(f"{file} holds {len(entries)} secrets, and an import has 1 to {MOST}")
    return [{"name": each.name, "value": each.value} for each in entries]


def _in_object(text: str, file: str) -> Iterator[ImportEntry]:
    try:
        # As pairs: a name that comes twice would be lost in a dictionary.
        pairs = cast("Sequence[tuple[str, Any]]", json.loads(text, object_pairs_hook=list))
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise StartError(f"{file} begins like a JSON object and is none{where}") from None
    for number, (name, value) in enumerate(pairs, 1):
        yield ImportEntry(f"{file}: entry {number}", name, value)


def _in_lines(text: str, file: str) -> Iterator[ImportEntry]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, equals, value = line.removesuffix("\r").partition("=")
            yield ImportEntry(f"{file}:{number}", name.strip(), value if equals else None)


def _mistakes(entries: Sequence[ImportEntry]) -> Iterator[tuple[ImportEntry, str]]:
    places: dict[str, str] = {}
    for each in entries:
        mistake = _mistake(each)
        if mistake is None and each.name in places:
            mistake = f"{each.name} stands in {places[each.name]} already"
        if mistake is not None:
            yield each, mistake
        places.setdefault(each.name, each.place)


def _mistake(entry: ImportEntry) -> str | None:
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
