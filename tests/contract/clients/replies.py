"""What the scripts that check recorded replies share: `tests.support.reply_tee` keeps them.

Environment: FILES, a JSON list of files; a line is {"path", "streams", "body"}. A stream that its
client left ends anywhere: its whole events count. A line without an end is no line.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MOST = 20
"""Most faults that are reported."""


class Parser(NamedTuple):
    """How a library parses a reply: what it refuses raises an error."""

    whole: Callable[[str], object]
    event: Callable[[str], object]


def check_replies(parsers: Mapping[str, Parser]) -> None:
    """Print the faults of all replies as a JSON list.

    Args:
        parsers: The path that was asked -> who reads what it answers.
    """
    faults: dict[str, str] = {}
    for file in json.loads(os.environ["FILES"]):
        *lines, _ = Path(file).read_text(encoding="utf-8").split("\n")
        for reply in map(json.loads, lines):
            parser = parsers.get(reply["path"])
            if parser is not None:
                for fault, text in _faults(reply, parser):
                    faults.setdefault(fault, text)
    print(json.dumps([f"{fault}\n{text}" for fault, text in faults.items()][:MOST]))  # noqa: T201


def _faults(reply: dict, parser: Parser) -> Iterator[tuple[str, str]]:
    """Return the faults and their places; a fault of several replies is reported once."""
    parse = parser.event if reply["streams"] else parser.whole
    for text in _events(reply["body"]) if reply["streams"] else [reply["body"]]:
        try:
            parse(text)
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            yield f"{reply['path']}: {str(error)[:600]}", text[:600]


def _events(body: str) -> Iterator[str]:
    *blocks, _ = body.split("\n\n")
    for block in blocks:
        lines = [each.removeprefix("data: ") for each in block.split("\n") if each[:5] == "data:"]
        if lines == ["[DONE]"]:
            return
        if lines:
            yield "\n".join(lines)
