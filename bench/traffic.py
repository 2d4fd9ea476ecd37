"""The content in every format: the question, the answer, its tokens and its price.

Shared by the upstream, which says it, and the load, which expects it; `bench.formats` has the
bytes. A reply that is not whole is `Truncated`, whatever its format.
"""

from __future__ import annotations

import re
from math import isclose
from typing import Final, NamedTuple

PROVIDER_MODEL: Final = "fixed"
CHUNKS: Final = 50
"""Pieces of a stream, each a write of its own; the last holds the reply's end too."""

STAMP_DIGITS: Final = 19
STAMP: Final = b"0" * STAMP_DIGITS
"""Where a chat chunk says when it was written, in nanoseconds of the machine's monotonic clock."""
FINGERPRINT: Final = f"fp_{STAMP.decode()}"

_STAMPED = re.compile(rb'"fp_([0-9]{19})"')
_QUESTION_BYTES = 1_880
_ANSWER_BYTES = 560
_WORDS = "the quick brown fox jumps over the lazy dog and then it rests for a while in the shade "

INSTRUCTIONS: Final = "You are terse."
QUESTION: Final = (_WORDS * 30)[:_QUESTION_BYTES]
TEMPERATURE: Final = 0.2
ANSWER: Final = (_WORDS * 20)[:_ANSWER_BYTES].strip()
PIECES: Final = tuple(f" word{number:03d}" for number in range(CHUNKS))

INPUT_TOKENS: Final = 480
OUTPUT_TOKENS: Final = 140
INPUT_PRICE: Final = "0.000001"
OUTPUT_PRICE: Final = "0.000002"
COST: Final = INPUT_TOKENS * float(INPUT_PRICE) + OUTPUT_TOKENS * float(OUTPUT_PRICE)

_BLANK = b"\n\n"


class Truncated(ValueError):
    """A reply is not the one that the upstream sent, or not all of it."""


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    """Its name; empty where it has none."""
    data: bytes


def read_events(body: bytes) -> list[Event]:
    """Return the events of a stream, without its comments.

    Raises:
        Truncated: It ends within an event.
    """
    if not body.endswith(_BLANK):
        raise Truncated("a stream that ends within an event")
    events = [_read_event(block) for block in body.removesuffix(_BLANK).split(_BLANK)]
    return [event for event in events if event.data]


def _read_event(block: bytes) -> Event:
    fields = {b"event": b"", b"data": b""}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b": ")
        fields[name] = value
    return Event(fields[b"event"].decode("utf-8", "replace"), fields[b"data"])


def check_text(said: object, wanted: object) -> None:
    """Check the text of a reply.

    Raises:
        Truncated: It is something else.
    """
    if said != wanted:
        raise Truncated("another answer than the upstream's")


def check_usage(given: int, made: int, cost: float | None, *, priced: bool) -> None:
    """Check the usage of a reply.

    Args:
        given: Tokens of the prompt.
        made: Tokens of the answer.
        cost: What it says that it cost.
        priced: Whether it must say that, as the gateway's does.

    Raises:
        Truncated: It is another one than the upstream's, or its cost is wrong.
    """
    if (given, made) != (INPUT_TOKENS, OUTPUT_TOKENS):
        raise Truncated("another usage than the upstream's")
    if priced and not isclose(cost or 0.0, COST):
        raise Truncated(f"the cost in the usage is {cost}")


def stamps(data: bytes) -> list[int]:
    """Return when the chunks in some bytes of a stream were written, in nanoseconds."""
    return [int(digits) for digits in _STAMPED.findall(data)]
