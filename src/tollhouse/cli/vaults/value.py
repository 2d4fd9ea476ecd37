"""The value of a secret, from where other users of the machine cannot see it.

    --value-file FILE     the file; - is standard input
    a terminal            a prompt that does not show what is typed
    anything else         standard input

Never an argument: the process list shows those. No message repeats any of a value.
"""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.kernel.secret import Secret
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Generator

_STANDARD_INPUT: Final = "-"
_MOST_BYTES: Final = 512 * 1024
"""More than any value has; what is longer is another file."""


def read_value(file: str | None, name: str) -> Secret:
    """Return the value of a secret, without the end of its last line.

    Args:
        file: Where it stands; `-` for standard input; None to ask, or for standard input where
            nobody can be asked.
        name: The secret's, for the question.

    Raises:
        StartError: It cannot be read, is empty, or is no text.
    """
    if file is None and sys.stdin.isatty():
        value = _asked(name)
    else:
        value = _without_end(text_in(file or _STANDARD_INPUT, _MOST_BYTES))
    if not value:
        message = "the value is empty: nothing was stored"
        raise StartError(message)
    return Secret(value)


def text_in(file: str, most_bytes: int) -> str:
    """Return a file of secrets.

    Args:
        file: Its path; `-` for standard input.
        most_bytes: How long it may be.

    Raises:
        StartError: It cannot be read, is too long, or is no text.
    """
    shown = "standard input" if file == _STANDARD_INPUT else file
    try:
        if file == _STANDARD_INPUT:
            raw: bytes = cast("Any", sys.stdin).buffer.read(most_bytes + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(most_bytes + 1)
    except OSError as error:
        message = f"{shown} cannot be read ({error.strerror})"
        raise StartError(message) from None
    if len(raw) > most_bytes:
        message = f"{shown} has more than {most_bytes} bytes: is it the right one?"
        raise StartError(message)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        message = f"{shown} is no UTF-8 text"
        raise StartError(message) from None


def _asked(name: str) -> str:
    try:
        with _interruptible():
            value = getpass(f"Value of {name} (not shown): ")
            value.encode()
            return value
    except EOFError:
        return ""
    except UnicodeError:
        message = "what was typed is no text in the terminal's encoding"
        raise StartError(message) from None


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end the question at once; a running event loop only takes note of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _without_end(text: str) -> str:
    """Return a text without the one end of a line that an editor or `echo` puts there."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
