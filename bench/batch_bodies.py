"""What batches are submitted with, and what the provider answers: text that no two items share.

A batch of 50,000 items is as large as the gateway takes one by default. Text is made of words that
are as rare as those of a language (by Zipf's law), the same in each run: it compresses to a third,
as prose does, and no chunk repeats itself.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from bench.formats import FORMATS, chat_reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ITEMS_MODEL: Final = "bench/items"
ITEMS_BASE: Final = "/items/v1"
"""Where the provider of that model is, at the upstream."""
ITEMS_PATH: Final = ITEMS_BASE + FORMATS["chat"].path.removeprefix("/v1")
ITEM_BYTES: Final = 3_990
"""Of an item in a batch, with its comma."""
REPLY_BYTES: Final = 4_000
_REPLIES: Final = 256
"""Different ones: more text than a compressor of level 1 looks back at (512 KB)."""
_VOCABULARY: Final = 5_000
_WORDS: Final = 500_000
_LETTERS: Final = "etaoinshrdlucmfwypvbgk"
_SYSTEM: Final = {"role": "system", "content": "Answer in one sentence, naïvely.\nNo lists."}


def item(number: int) -> bytes:
    """Return an item of a batch, as it is submitted."""
    name = f"request-{number:05}"
    return _item(name, _text(number, ITEM_BYTES - 1 - len(_item(name, ""))))


def write_body(path: Path, items: int) -> Path:
    """Write a batch to a file and return its path."""
    with path.open("wb") as file:
        file.write(b'{"endpoint":"/v1/chat/completions","model":"%b",' % ITEMS_MODEL.encode())
        file.write(b'"requests":[')
        for number in range(items):
            file.write(b"," + item(number) if number else item(number))
        file.write(b"]}")
    return path


def replies() -> Iterator[bytes]:
    """Yield different replies of the provider."""
    rest = REPLY_BYTES - len(chat_reply(""))
    for number in range(_REPLIES):
        yield chat_reply(_text(number, rest))


def _item(name: str, text: str) -> bytes:
    user = {"role": "user", "content": text}
    body = {"messages": [_SYSTEM, user], "max_tokens": 1_000, "temperature": 0.2}
    return msgspec.json.encode({"custom_id": name, "body": body})


def _text(number: int, size: int) -> str:
    text = _prose()
    at = number * size % (len(text) - size)
    return text[at : at + size]


@cache
def _prose() -> str:
    source = random.Random(1)
    words = ["".join(source.choices(_LETTERS, k=source.randint(2, 10))) for _ in range(_VOCABULARY)]
    shares = [1 / (rank + 2) for rank in range(_VOCABULARY)]
    return " ".join(source.choices(words, shares, k=_WORDS))
