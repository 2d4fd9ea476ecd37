"""Finds the differences of what two gateways asked and said in the same turn.

What each of them makes itself is left aside: ids of generations, in whatever they stand, and the
times of replies. All else counts, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from tests.oracle.http_servers import Reply
from tests.support.providers.upstream_server import ReceivedRequest

_TIMES: Final = {"created", "created_at", "completed_at"}
_OWN_HEADERS: Final = {"date", "content-length", "x-generation-id"}
"""Of a reply: they tell a time, an id, and how long a body with both is."""
_TRANSPORTS: Final = {"host", "content-length"}
"""Headers of requests to a provider: they tell its address, and how long the body is."""
_GENERATION: Final = re.compile(r"gen-[0-9]{10}-[0-9a-f]{20}")
_COMMENT: Final = re.compile(rb"^:[^\n]*\n\n", re.MULTILINE)
"""Comments depend on time: they keep a connection open."""
SPELLED: Final = "bytes"
"""A body as it was written: that is compared where all that it says is equal."""
_SHOWN: Final = 160


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn as one gateway had it."""

    asked: list[ReceivedRequest]
    """What the provider got."""
    reply: Reply


@dataclass(frozen=True, slots=True)
class Difference:
    """A place in which two values differ; `path` has `[]` for every number of a list."""

    path: str
    old: str
    new: str


class Made:
    """What a gateway made itself in a conversation: ids by the turns they are of, and times."""

    def __init__(self, since: int) -> None:
        self._since = since
        self._ids: dict[str, str] = {}
        self._times = set[int]()

    def learn(self, turn: int, reply: Reply) -> None:
        """Note the id of a turn's generation; of some refusals it stands in the body alone."""
        made = reply.generation_id
        if not made and isinstance(body := parsed(reply.body), dict):
            made = str(body.get("request_id"))
        if _GENERATION.fullmatch(made):
            self._ids[made] = f"gen-of-turn-{turn}"

    def without(self, data: bytes) -> bytes:
        """Return data with names in place of the ids."""
        for made, name in self._ids.items():
            data = data.replace(made.encode(), name.encode())
        return data

    def spelled(self, body: bytes) -> str:
        """Return a body as it was written, without its own times."""
        for each in self._times:
            body = body.replace(b"%d" % each, b"0")
        return body.decode(errors="backslashreplace")

    def timeless(self, value: Any) -> Any:
        """Return JSON without the times of this run; a provider's own times are older."""
        if isinstance(value, list):
            return [self.timeless(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            name: "made here" if self._is_own(name, each) else self.timeless(each)
            for name, each in value.items()
        }

    def _is_own(self, name: str, value: Any) -> bool:
        own = name in _TIMES and isinstance(value, int) and value >= self._since
        self._times |= {value} if own else set()
        return own


class Number(str):
    """A number as it was written: 1.50 is not 1.5."""

    __slots__ = ()


def parsed(data: bytes) -> Any:
    """Return JSON, with its names and numbers as they were written; other data as text."""
    try:
        return json.loads(
            data, parse_float=Number, parse_constant=Number, object_pairs_hook=_object
        )
    except (ValueError, RecursionError):
        return data.decode(errors="backslashreplace")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        while name in found:
            name += ", again"  # noqa: PLW2901 - a name that stands twice is shown twice
        found[name] = value
    return found


def events_of(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream, each with its fields.

    What follows the last empty line is an event that lacks its end.
    """
    *whole, rest = body.split(b"\n\n")
    cut = [{"cut": rest.decode(errors="backslashreplace")}] if rest else []
    return [_event(each) for each in whole] + cut


def _event(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in text.split(b"\n"):
        name, _, value = line.partition(b": ")
        field = name.decode(errors="backslashreplace")
        found[field] = parsed(value) if field == "data" else value.decode(errors="backslashreplace")
    return found


def said(reply: Reply, made: Made) -> dict[str, Any]:
    """Return what a client was told, so that it can be compared."""
    headers = dict(reply.headers)
    body = made.without(reply.body)
    streams = headers.get("content-type", "").startswith("text/event-stream")
    if streams:
        body = _COMMENT.sub(b"", body)
    shown = events_of(body) if streams else parsed(body)
    return {
        "status": reply.status,
        "headers": {name: v for name, v in headers.items() if name not in _OWN_HEADERS}
        | {"x-generation-id": "x-generation-id" in headers},
        "events" if streams else "body": made.timeless(shown),
        "whole": reply.whole,
        SPELLED: made.spelled(body),
    }


def asked(request: ReceivedRequest, made: Made) -> dict[str, Any]:
    """Return what a provider was asked, so that it can be compared."""
    url = urlsplit(request.path)
    body = made.without(request.body)
    return {
        "method": request.method,
        "path": url.path.split("/", 3)[3],
        "query": url.query,
        "headers": {name: v for name, v in request.headers.items() if name not in _TRANSPORTS},
        "body": parsed(body),
        SPELLED: body.decode(errors="backslashreplace"),
    }


def differences_of(old: Exchange, new: Exchange, made: tuple[Made, Made]) -> list[Difference]:
    """Return in what a turn differs: what was asked, and what was said; the first of each path."""
    shown = [
        {"asked": [asked(each, mine) for each in turn.asked], "reply": said(turn.reply, mine)}
        for turn, mine in zip((old, new), made, strict=True)
    ]
    found: dict[str, Difference] = {}
    for each in differences(shown[0], shown[1]):
        found.setdefault(each.path, each)
    return list(found.values())


def differences(old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences of two values; the order of names counts, too.

    In lists nothing is told of what follows an element of another kind, or one that is missing.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_objects(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _of_lists(old, new, f"{path}[]")
    elif type(old) is not type(new) or old != new:
        yield Difference(path.lstrip("."), *_around(_text(old), _text(new)))


def _of_objects(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[Difference]:
    equal = True
    for name in dict.fromkeys((*old, *new)):
        if name == SPELLED and not equal:
            continue
        one, other = old.get(name, _NOTHING), new.get(name, _NOTHING)
        for each in differences(one, other, f"{path}.{name}"):
            equal = False
            yield each
    if equal:
        yield from differences(" ".join(old), " ".join(new), f"{path} (order of names)")


def _of_lists(old: list[Any], new: list[Any], path: str) -> Iterator[Difference]:
    for one, other in zip(old, new, strict=False):
        if _kind(one) != _kind(other):
            yield from differences(_kind(one), _kind(other), path)
            return
        found = list(differences(one, other, path))
        yield from found
        if found and len(old) != len(new):
            return
    if len(old) != len(new):
        [more] = max(old, new, key=len)[min(len(old), len(new)) :][:1]
        both = (more, _NOTHING) if len(old) > len(new) else (_NOTHING, more)
        yield from differences(*both, path)


def _kind(value: Any) -> str:
    """Return what tells an event, an item, a block or a part from others in its list."""
    if not isinstance(value, dict):
        return ""
    return ", ".join(str(value[name]) for name in ("event", "type") if name in value)


_NOTHING: Final = object()


def _text(value: Any) -> str:
    if value is _NOTHING:
        return "(nothing)"
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def _around(old: str, new: str) -> tuple[str, str]:
    """Return two texts around the first character in which they differ."""
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    start = max(0, same - _SHOWN // 2)
    before = "..." if start else ""
    return tuple(before + each[start : start + _SHOWN] for each in (old, new))  # type: ignore[return-value]
