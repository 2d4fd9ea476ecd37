"""What differs between two answers to an input, and which of that is decided.

    differences(before, after)     -> [Difference("sent: messages.*.content", "a", "b"), ...]
    Decisions(file).reason(...)    -> the sentence, or None

`what` names a place: a part of an answer and the path in its JSON, with `*` for a number. JSON that
says the same in other bytes is `(other bytes)`; of a stream the types of events are in brackets.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.oracle.inputs import Input

DECIDED = Path(__file__).with_name("decided.yaml")
NOTHING = "(nothing)"
MOST = 30
"""Places that are told of one input."""
_BODIES = ("sent", "shown")
_STREAMED = ("feeds", "end")
_NOT_COMPARED = ("at",)
"""Where a crash happened in the code is of one version."""


@dataclass(frozen=True)
class Difference:
    what: str
    before: Any
    after: Any


def differences(before: Input, after: Input) -> list[Difference]:
    """Return where two answers differ; none if they say the same."""
    return [*dict.fromkeys(_differences(before, after))][:MOST]


def _differences(before: Input, after: Input) -> Iterator[Difference]:
    if "feeds" in before and "feeds" in after:
        yield from _of_streams(before, after)
    for name in dict.fromkeys([*before, *after]):
        first, second = before.get(name, NOTHING), after.get(name, NOTHING)
        if first == second or name in _NOT_COMPARED:
            continue
        if name in _STREAMED and "feeds" in before and "feeds" in after:
            continue
        if name == "without_content" and NOTHING not in (first, second):
            for each in _differences(first, second):
                yield Difference(f"without content: {each.what}", each.before, each.after)
        elif name in _BODIES and NOTHING not in (first, second):
            yield from _of_bodies(name, first, second)
        else:
            yield from _of_values(name, first, second)


def _of_bodies(name: str, before: str, after: str) -> Iterator[Difference]:
    """Return where two texts differ, as JSON if they are that."""
    try:
        first, second = json.loads(before), json.loads(after)
    except (ValueError, RecursionError):
        yield Difference(f"{name}: (no JSON)", before, after)
        return
    if found := [*_of_values("", first, second)]:
        yield from (Difference(f"{name}: {each.what}", each.before, each.after) for each in found)
    else:
        yield Difference(f"{name}: (other bytes)", before, after)


def _of_values(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            below = f"{path}.{name}" if path else name
            yield from _of_values(below, before.get(name, NOTHING), after.get(name, NOTHING))
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield Difference(f"{path} (how many)", before, after)
            return
        for first, second in zip(before, after, strict=True):
            yield from _of_values(f"{path}.*" if path else "*", first, second)
    elif before != after or type(before) is not type(after):
        yield Difference(path, _frozen(before), _frozen(after))


def _frozen(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _of_streams(before: Input, after: Input) -> Iterator[Difference]:
    """Return where two streams differ: in events, in their order, or in when they come."""
    first, second = ["".join(each["feeds"]) + each.get("end", "") for each in (before, after)]
    if first == second:
        if (before["feeds"], before.get("end")) != (after["feeds"], after.get("end")):
            yield Difference("stream: (when it is shown)", *map(_feeds, (before, after)))
        return
    mine, theirs = _events(first), _events(second)
    kinds, others = [kind for kind, _ in mine], [kind for kind, _ in theirs]
    if kinds == others:
        pairs = [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]]
        for (kind, data), (_, other) in pairs:
            yield from _of_bodies(f"stream[{kind}]", data, other)
        if not pairs:
            yield Difference("stream: (other bytes)", first, second)
    elif Counter(kinds) == Counter(others):
        yield Difference("stream: (order of events)", " ".join(kinds), " ".join(others))
    else:
        counts = Counter(kinds), Counter(others)
        for kind in dict.fromkeys([*kinds, *others]):
            if counts[0][kind] != counts[1][kind]:
                yield Difference(f"stream[{kind}] (how many)", first, second)


def _feeds(answer: Input) -> str:
    return " | ".join([*answer["feeds"], answer.get("end", "")])


def _events(stream: str) -> list[tuple[str, str]]:
    """Return the events of a stream with their types: those of chats by what they hold."""
    return [(_kind(data), data) for frame in stream.split("\n\n") if (data := _data(frame))]


def _data(frame: str) -> str:
    lines = [line for line in frame.split("\n") if not line.startswith("event: ")]
    return "\n".join(lines).removeprefix("data: ")


def _kind(data: str) -> str:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return "[DONE]" if data == "[DONE]" else "no JSON"
    if not isinstance(value, dict):
        return "no object"
    if "type" in value:
        return str(value["type"])
    told = [name for name in ("error", "usage") if value.get(name)]
    for choice in value.get("choices") or ():
        delta = choice.get("delta") or {}
        told += [name for name in delta if name != "role" and delta[name] is not None]
        told += ["finish_reason"] if choice.get("finish_reason") else []
    return "+".join(sorted(set(told))) or "chunk"


# Decisions


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A difference that is meant; patterns have `*` for any text, and what is missing is any."""

    why: str
    what: str = "*"
    op: str = "*"
    client: str = "*"
    dialect: str = "*"
    before: str = "*"
    after: str = "*"

    def covers(self, asked: Input, found: Difference) -> bool:
        pairs = (
            *((getattr(self, name), asked.get(name, "")) for name in ("op", "client", "dialect")),
            (self.what, found.what),
            (self.before, found.before),
            (self.after, found.after),
        )
        return all(_matches(pattern, text_of(value)) for pattern, value in pairs)


def text_of(value: Any) -> str:
    """Return a value as a report and a pattern have it: texts as they are, others as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def read_decisions(file: Path = DECIDED) -> list[Decision]:
    """Return the decided differences of a file."""
    return [Decision(**each) for each in yaml.safe_load(file.read_text("utf-8")) or ()]


# Groups

Key = tuple[str, str, str, str]


@dataclass
class Group:
    """Differences of one kind, and the shortest input that shows it."""

    count: int = 0
    number: int = 0
    """The example's line in the file, from 1."""
    example: str = ""
    found: Difference | None = None

    def add(self, number: int, line: str, found: Difference) -> None:
        self.count += 1
        if not self.example or len(line) < len(self.example):
            self.number, self.example, self.found = number, line, found


@dataclass
class Comparison:
    """What was found in all inputs."""

    decisions: Sequence[Decision] = ()
    equal: int = 0
    decided: int = 0
    """Inputs of which every difference is decided."""
    differing: int = 0
    """Inputs with a difference that is not."""
    uses: Counter[str] = field(default_factory=Counter[str])
    """How many inputs each decision covers, by its sentence."""
    groups: dict[Key, Group] = field(default_factory=dict[Key, Group])

    def add(self, number: int, line: str, before: str, after: str) -> None:
        """Compare two answers, which are lines of JSON."""
        found = [] if before == after else differences(json.loads(before), json.loads(after))
        if not found:
            self.equal += 1
            return
        asked = json.loads(line)
        open_ = [each for each in found if not self._is_decided(asked, each)]
        self.decided += not open_
        self.differing += bool(open_)
        for each in open_:
            key = (asked["op"], asked.get("client", ""), asked.get("dialect", ""), each.what)
            self.groups.setdefault(key, Group()).add(number, line, each)

    def _is_decided(self, asked: Mapping[str, Any], found: Difference) -> bool:
        for decision in self.decisions:
            if decision.covers(asked, found):
                self.uses[decision.why] += 1
                return True
        return False
