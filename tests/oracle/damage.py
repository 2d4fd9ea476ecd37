"""Changes of JSON that clients and providers might send: a field less, another type, other words.

The names of counts, the reasons and the codes are those of the tables in docs/formats.md.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from tests.oracle.checkouts import HERE

VALUES: Sequence[Any] = (
    *(None, True, False, 0, -1, 1.5, 1e300, 2**63, 7, "", " ", "x", "null", "{}", '{"a":1}'),
    *([], {}, [None], [[]], {"type": "text", "text": "x"}, [{"type": "text", "text": "x"}]),
    *(
        "\N{SNOWMAN}\N{GRINNING FACE}",
        'a"b\\c\n\r\t\0',
        "\u2028",
        "\ud800",
        "th2.acme.c2ln",
        "th1.e30",
    ),
    *("tool_use", "function_call", "thinking", "stop", "length", "call_1", "data:,x"),
)
NAMES = (
    "id",
    "index",
    "type",
    "name",
    "arguments",
    "content",
    "error",
    "usage",
    "x",
    "finish_reason",
)
COUNTS: Sequence[Any] = (0, 1, 2, 3, 5, 8, 40, 100, 1000, 12345, "12", 3.0, -1, None, 10**12)
_REASONS = {"finish_reason", "stop_reason", "native_finish_reason"}
_CODES = {"code", "type", "status"}


class Damage:
    """Damages JSON, always in the same way after the same seed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        usage, self._reasons, self._codes = (
            _last_column(title) for title in ("Usage", "Finish reasons", "Errors of providers")
        )
        self._counts = [name for name in usage if "[" not in name]
        said = _section("Usage").partition("It may stand in ")[2].partition(" or at the top")[0]
        self._usages = [each for each in re.findall("`([^`]+)`", said) if "[" not in each]
        self._changes: Sequence[Callable[[Any, Any, Any, Sequence[str]], None]] = (
            *(self._drop, self._swap, self._swap, self._rename, self._repeat, self._move),
            *(self._twist, self._word, self._count, self._graft, self._graft, self._graft),
        )

    def text(self, text: str, others: Sequence[str]) -> str:
        """Return JSON with one or two changes; what is none, or nested too deep for it, cut.

        Fields may come from others, which have the same shape.
        """
        random = self._random
        ascii_, spaced = random.random() < 1 / 5, random.random() < 1 / 10
        try:
            value = json.loads(text)
            for _ in range(random.choice((1, 1, 2))):
                self._change(value, others)
            separators = None if spaced else (",", ":")
            changed = json.dumps(value, ensure_ascii=ascii_, separators=separators)
        except (ValueError, RecursionError):
            return text[: random.randrange(len(text) + 1)]
        # Half of a pair has no UTF-8: it is escaped, as a program that cut a text would write it.
        return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in changed)

    def _change(self, value: Any, others: Sequence[str]) -> None:
        if found := [*places(value)]:
            holder, key = self._random.choice(found)
            self._random.choice(self._changes)(value, holder, key, others)

    def _drop(self, _value: Any, holder: Any, key: Any, _: Sequence[str]) -> None:
        del holder[key]

    def _swap(self, _value: Any, holder: Any, key: Any, _: Sequence[str]) -> None:
        holder[key] = copy.deepcopy(self._random.choice(VALUES))

    def _rename(self, _value: Any, holder: Any, key: Any, _: Sequence[str]) -> None:
        if isinstance(holder, dict):
            holder[self._random.choice(NAMES)] = holder.pop(key)

    def _repeat(self, _value: Any, holder: Any, key: Any, _: Sequence[str]) -> None:
        if isinstance(holder, list):
            holder.insert(self._random.randrange(len(holder) + 1), copy.deepcopy(holder[key]))

    def _move(self, value: Any, holder: Any, key: Any, _: Sequence[str]) -> None:
        other, name = self._random.choice([*places(value)])
        holder[key] = copy.deepcopy(other[name])

    def _word(self, value: Any, holder: Any, key: Any, others: Sequence[str]) -> None:
        """Let a provider end, or fail, with another word."""
        found = [each for each in places(value) if each[1] in _REASONS | _CODES]
        if not found:
            return self._twist(value, holder, key, others)
        holder, key = self._random.choice(found)
        holder[key] = self._random.choice(self._reasons if key in _REASONS else self._codes)
        return None

    def _count(self, value: Any, _holder: Any, _key: Any, _: Sequence[str]) -> None:
        """Let a provider count with other names, and perhaps at another place."""
        random = self._random
        if not isinstance(value, dict):
            return
        usage: dict[str, Any] = {}
        if random.random() < 1 / 2:
            usage |= random.choice(
                (
                    {"prompt_tokens": 50, "completion_tokens": 9},
                    {"input_tokens": 50, "output_tokens": 9},
                )
            )
        for name in random.sample(self._counts, random.choice((1, 2, 3, 5))):
            _put(usage, name, random.choice(COUNTS))
        found = [holder for holder, key in places(value) if key == "usage"]
        if found and random.random() < 2 / 3:
            random.choice(found)["usage"] = usage
        else:
            _put(value, random.choice(self._usages), usage)

    def _graft(self, value: Any, holder: Any, key: Any, others: Sequence[str]) -> None:
        """Take a field over that another has at a place of the same kind."""
        random = self._random
        mine = dict(_objects(value))
        theirs = _objects(json.loads(random.choice(others))) if others else ()
        shared = [(mine[path], each) for path, each in theirs if path in mine and each]
        if not shared:
            return self._twist(value, holder, key, others)
        target, origin = random.choice(shared)
        name = random.choice([*origin])
        target[name] = origin[name]
        return None

    def _twist(self, _value: Any, holder: Any, key: Any, _: Sequence[str]) -> None:
        """Change a value to another of its type, or of one that is near."""
        random, value = self._random, holder[key]
        match value:
            case bool():
                others: Sequence[Any] = (not value,)
            case int() | float():
                others = (value + 1, -value, str(value), float(value), value * 1000)
            case str():
                texts = (value + "\N{SNOWMAN}", value.upper(), value[: len(value) // 2], value * 2)
                others = (*texts, [value], {"text": value})
            case list():
                others = (value[::-1], value[:1], {"0": value}, [value])
            case dict():
                others = ([value], dict(reversed(value.items())), json.dumps(value))
            case _:
                others = VALUES
        holder[key] = copy.deepcopy(random.choice(others))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return every place of a value: what holds it, and its name or number there."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict | list):
            keys = [*holder] if isinstance(holder, dict) else range(len(holder))
            for key in keys:
                yield holder, key
                waiting.append(holder[key])


def _objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every object of a value by its path without numbers."""
    if isinstance(value, dict):
        yield path, value
        for name, each in value.items():
            yield from _objects(each, f"{path}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from _objects(each, f"{path}.*")


def _put(holder: Any, path: str, value: Any) -> None:
    """Set a value at a path, whose objects are made where they are missing."""
    *above, name = path.split(".")
    for each in above:
        if not isinstance(holder.get(each), dict):
            holder[each] = {}
        holder = holder[each]
    holder[name] = value


def _section(title: str) -> str:
    page = (HERE / "docs" / "formats.md").read_text("utf-8")
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _last_column(title: str) -> list[str]:
    rows = [line for line in _section(title).splitlines() if line.startswith("| ")]
    cells = [row.strip("| ").split(" | ")[-1] for row in rows]
    return [word for cell in cells for word in re.findall("`([^`]+)`", cell)]
