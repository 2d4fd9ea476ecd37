"""The process of one walk: takes an order, says that it goes on, and ends with what it found.

    python -P -m tollhouse.interns.walks.<program> ORDER

The order is one line of JSON. On standard output come frames: a letter, the length of what follows
in four bytes, and that.

    .    nothing: it goes on, said once a second at most
    +    a piece of what is made
    =    what was found, as JSON: the last frame of a walk that has come to its end
    !    why there is no end, as JSON: {"reason": ...} or {"errno": ...}; the last frame too

Who ends without one of the last two has failed. It ends with the server at its next frame, since
nobody is left to read that. It imports little: a server waits for its start at each boot.

Source: getrlimit(2), pipe(7).
"""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LIFE: Final = b"."
PIECE: Final = b"+"
FOUND: Final = b"="
FAILED: Final = b"!"
LENGTH_BYTES: Final = 4
LARGEST: Final = 1024 * 1024
"""Bytes of a frame's content."""
_LIFE_SECONDS: Final = 1.0
_OUTPUT: Final = 1


class Sender:
    """Sends frames to the server."""

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self._last = time.monotonic()

    def alive(self) -> None:
        """Say that it goes on, unless that was said a moment ago."""
        now = time.monotonic()
        if now - self._last >= _LIFE_SECONDS:
            self._last = now
            _send(LIFE, b"")

    def piece(self, content: bytes) -> None:
        """Send a piece of what is made."""
        for begin in range(0, len(content), LARGEST):
            _send(PIECE, content[begin : begin + LARGEST])


def serve(work: Callable[[dict[str, Any], Sender], object]) -> None:
    """Do what was ordered, and send what it came to.

    Args:
        work: Takes the order, and returns what was found, as something that JSON can say.
    """
    order = json.loads(sys.argv[1])
    most = order["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kind = FAILED
    told: object
    try:
        told = work(order, Sender())
        kind = FOUND
    except BrokenPipeError:
        return
    except MemoryError:
        told = {"reason": "too_much_memory"}
    except OSError as error:
        told = {"errno": error.errno or 0}
        if error.errno == errno.ENOMEM:
            told = {"reason": "too_much_memory"}
    with suppress(BrokenPipeError):
        _send(kind, json.dumps(told).encode())


def _send(kind: bytes, content: bytes) -> None:
    rest = memoryview(kind + len(content).to_bytes(LENGTH_BYTES, "big") + content)
    while rest:
        rest = rest[os.write(_OUTPUT, rest) :]
