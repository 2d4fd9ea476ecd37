"""More inputs from recorded ones: they are crossed with each other, and damaged.

    generated(recorded, random, count)  -> that many, most of them different

A request goes to every dialect of its client and to several endpoints; a reply or stream is read
for any client's request; each may have a field dropped, a value of another type, a text that is
strange, a usage of another provider, or events that are cut, repeated, exchanged or foreign.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from tests.oracle.inputs import Input
from tests.oracle.worker import answer

PROFILES: Sequence[Input] = (
    {},
    {},
    {"profile": {"usage_in_streams": False}},
    {"profile": {"output_limit": "max_completion_tokens", "refuses_reasoning": True}},
    {"profile": {"takes_extensions": True}},
    {"profile": {"takes_reasoning_as": "reasoning_content"}},
    {"profile": {"takes_reasoning_as": "reasoning_details", "takes_extensions": True}},
    {"profile": {"refuses": ["max_tokens", "temperature", "stop", "tool_choice", "reasoning"]}},
    {"profile": {"refuses": ["custom", "image_generation", "web_search", "namespace"]}},
    {"profile": {"refuses_in_chat": ["top_p", "seed", "response_format", "stream_options"]}},
    {"max_completion_tokens": 2048},
    {"provider": "other", "model": 'a "b"/\N{SNOWMAN}'},
)
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
MOST_EVENTS = 300
SHARES = {"request": 38, "reply": 24, "stream": 32, "whole reply": 3, "provider error": 3}
"""How many of a hundred are of which operation."""


def generated(recorded: Sequence[Input], random: Random, count: int) -> Iterator[Input]:
    """Return inputs that are made of recorded ones."""
    pool = _Pool(recorded, random)
    makers = {op: getattr(pool, op.replace(" ", "_")) for op in SHARES}
    chosen = random.choices([*SHARES], [*SHARES.values()], k=count)
    return (makers[op]() for op in chosen)


class _Pool:
    """What recorded inputs are made of."""

    def __init__(self, recorded: Sequence[Input], random: Random) -> None:
        self._random = random
        self._dialects: dict[str, set[str]] = defaultdict(set)
        self._clients: dict[str, set[str]] = defaultdict(set)
        requests: dict[str, dict[str, Input]] = defaultdict(dict)
        answered: dict[str, dict[str, Input]] = defaultdict(dict)
        replies: dict[str, dict[str, None]] = defaultdict(dict)
        self._streams: dict[str, list[list[str]]] = defaultdict(list)
        events: dict[str, dict[str, None]] = defaultdict(dict)
        self._errors = ['{"error":{"message":"x","code":429}}']
        self._conversations = [
            each
            for each in recorded
            if each["op"] == "reply" and each["client"] in {"chat", "responses", "messages"}
        ]
        for each in recorded:
            client, dialect = each.get("client"), each.get("dialect")
            if client and dialect:
                self._dialects[client].add(dialect)
                self._clients[dialect].add(client)
                asked = {name: each[name] for name in ("body", "headers", "query") if name in each}
                requests[client][json.dumps(asked)] = asked
                if each["op"] in {"reply", "stream"}:
                    answered[client][json.dumps(asked)] = asked
            if each["op"] == "reply" and _is_object(each["reply"]):
                replies[dialect][each["reply"]] = None
            if each["op"] == "stream" and 0 < len(each["events"]) <= MOST_EVENTS:
                self._streams[dialect].append(each["events"])
                events[dialect].update(dict.fromkeys(each["events"]))
            if each["op"] == "provider error":
                self._errors.append(each["data"])
        self._requests = {client: [*found.values()] for client, found in requests.items()}
        self._answered_requests = {client: [*found.values()] for client, found in answered.items()}
        """Requests to which a test has a reply; many others are refused."""
        self._replies = {dialect: [*found] for dialect, found in replies.items()}
        self._events = {dialect: [*found] for dialect, found in events.items()}
        self._usages = [*_usages([*events.values(), *replies.values()])]

    def request(self) -> Input:
        """Return a request to any dialect and endpoint, in one of three cases damaged."""
        random = self._random
        client = random.choice(sorted(self._requests))
        asked = self._request(client, self._requests[client])
        if self._conversations and random.random() < 1 / 5:
            asked = self._continued(random.choice(self._conversations))
        if random.random() < 1 / 3:
            asked["body"] = self._damaged(asked["body"])
        endpoint = random.choice(PROFILES)
        return asked | ({"endpoint": endpoint} if endpoint else {})

    def reply(self) -> Input:
        """Return a reply to any client's request, in one of two cases damaged."""
        random = self._random
        dialect = random.choice(sorted(self._replies))
        origin = random.choice(sorted(self._replies)) if random.random() < 1 / 20 else dialect
        body = random.choice(self._replies[origin])
        if random.random() < 1 / 2:
            body = self._damaged(body)
        if random.random() < 1 / 12 and dialect in self._streams:
            said = random.choice(self._streams[dialect])
            body = "".join(f"data: {data}\n\n" for data in said)
        if random.random() < 1 / 40:
            body = random.choice(self._errors)
        return self._answered(dialect) | {"op": "reply", "reply": body} | self._maker()

    def stream(self) -> Input:
        """Return a stream for any client's request, in two of three cases damaged."""
        random = self._random
        dialect = random.choice(sorted(self._streams))
        events = [*random.choice(self._streams[dialect])]
        if random.random() < 1 / 10:
            body = random.choice(self._replies[dialect])
            whole = answer({"op": "whole reply", "dialect": dialect, "data": body})
            events = whole.get("events") or events
        if random.random() < 2 / 3:
            for _ in range(random.choice((1, 1, 1, 2, 3))):
                events = self._damaged_events(dialect, events)
        asked = self._answered(dialect) | {"op": "stream", "events": events, "end": "as it came"}
        tokens = {"tokens": 12} if random.random() < 1 / 4 else {}
        return asked | self._maker() | tokens

    def _continued(self, replied: Input) -> Input:
        """Return the next request of a conversation: with the reply that its client was shown."""
        client = replied["client"]
        asked = {name: replied[name] for name in ("op", "client", "dialect", "body")}
        asked |= {"op": "request", "dialect": self._random.choice(sorted(self._dialects[client]))}
        said = answer(replied | {"maker": "acme"})
        if said["status"] == "ok" and _is_object(asked["body"]):
            body, shown = json.loads(asked["body"]), json.loads(said["shown"])
            name = "input" if client == "responses" else "messages"
            if isinstance(body.get(name), list):
                body[name] += _turns(client, shown)
                asked["body"] = json.dumps(body)
        return asked

    def whole_reply(self) -> Input:
        dialect = self._random.choice(sorted(self._replies))
        data = self._damaged(self._random.choice(self._replies[dialect]))
        return {"op": "whole reply", "dialect": dialect, "data": data}

    def provider_error(self) -> Input:
        return {"op": "provider error", "data": self._damaged(self._random.choice(self._errors))}

    def _request(self, client: str, requests: Sequence[Input]) -> Input:
        dialect = self._random.choice(sorted(self._dialects[client]))
        return {"op": "request", "client": client, "dialect": dialect} | self._random.choice(
            requests
        )

    def _answered(self, dialect: str) -> Input:
        """Return a request to a dialect, to which there may be a reply."""
        client = self._random.choice(sorted(self._clients[dialect]))
        pool = self._requests if self._random.random() < 1 / 10 else self._answered_requests
        return self._request(client, pool[client]) | {"dialect": dialect}

    def _maker(self) -> Input:
        return {"maker": "acme"} if self._random.random() < 1 / 2 else {}

    def _damaged(self, text: str) -> str:
        """Return JSON with one or two changes; what is none, or nested too deep for it, cut."""
        random = self._random
        ascii_, spaced = random.random() < 1 / 5, random.random() < 1 / 10
        try:
            value = json.loads(text)
            for _ in range(random.choice((1, 1, 2))):
                self._change(value)
            separators = None if spaced else (",", ":")
            changed = json.dumps(value, ensure_ascii=ascii_, separators=separators)
        except (ValueError, RecursionError):
            return text[: random.randrange(len(text) + 1)]
        # Half of a pair has no UTF-8: it is escaped, as a program that cut a text would write it.
        return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in changed)

    def _change(self, value: Any) -> None:
        """Change one place of a value."""
        random = self._random
        places = [*_places(value)]
        if not places:
            return
        holder, key = random.choice(places)
        match random.randrange(8):
            case 0:
                del holder[key]
            case 1 | 2:
                holder[key] = copy.deepcopy(random.choice(VALUES))
            case 3 if isinstance(holder, dict):
                holder[random.choice(NAMES)] = holder.pop(key)
            case 3 | 4 if isinstance(holder, list):
                holder.insert(random.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
            case 5 if self._usages and isinstance(value, dict):
                value["usage"] = copy.deepcopy(random.choice(self._usages))
            case 6:
                other, name = random.choice(places)
                holder[key] = copy.deepcopy(other[name])
            case _:
                holder[key] = _twisted(holder[key], random)

    def _damaged_events(self, dialect: str, events: list[str]) -> list[str]:
        random = self._random
        at, to = random.randrange(len(events) + 1), random.randrange(len(events) + 1)
        before, here, after = events[:at], events[at : at + 1], events[at + 1 :]
        moved = [*before, *after]
        moved[to:to] = here
        known = random.choice(self._events[dialect])
        other = random.choice([*self._events[random.choice(sorted(self._events))], *self._errors])
        damaged = [*before, *map(self._damaged, here), *after]
        return random.choice(
            (
                before,
                [*before, *after],
                [*before, *here, *here, *after],
                moved,
                [*before, known, *here, *after],
                [*before, other, *here, *after],
                *(damaged, damaged, damaged),
            )
        )


def _turns(client: str, shown: Any) -> list[Any]:
    """Return a reply as what a client sends back, and results of its calls."""
    match client:
        case "chat":
            message = shown["choices"][0]["message"]
            calls = message.get("tool_calls") or ()
            told = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
            return [message, *told]
        case "responses":
            calls = [item for item in shown["output"] if item["type"].endswith("_call")]
            told = [
                {
                    "type": f"{call['type']}_output",
                    "call_id": call.get("call_id"),
                    "output": "ok",
                }
                for call in calls
            ]
            return [*shown["output"], *told]
        case _:
            calls = [block for block in shown["content"] if block["type"] == "tool_use"]
            told = [{"type": "tool_result", "tool_use_id": call["id"]} for call in calls]
            turns = [{"role": "assistant", "content": shown["content"]}]
            return [*turns, {"role": "user", "content": told}] if told else turns


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return every place of a value: what holds it, and its name or number there."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict | list):
            keys = [*holder] if isinstance(holder, dict) else range(len(holder))
            for key in keys:
                yield holder, key
                waiting.append(holder[key])


def _twisted(value: Any, random: Random) -> Any:
    """Return a value of the same type that is another, or of a type that is near."""
    match value:
        case bool():
            return not value
        case int() | float():
            return random.choice((value + 1, -value, str(value), float(value), value * 1000))
        case str():
            texts = (value + "\N{SNOWMAN}", value.upper(), value[: len(value) // 2], value * 2)
            return random.choice((*texts, [value], {"text": value}))
        case list():
            return random.choice((value[::-1], value[:1], {"0": value}, [value]))
        case dict():
            return random.choice(([value], dict(reversed(value.items())), json.dumps(value)))
        case _:
            return random.choice(VALUES)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _usages(pools: Sequence[dict[str, None]]) -> Iterator[Any]:
    """Return the usages of all providers."""
    found: dict[str, Any] = {}
    for text in (each for pool in pools for each in pool):
        if '"usage' not in text or not _is_object(text):
            continue
        for holder, key in _places(json.loads(text)):
            if key in {"usage", "usage_metadata"} and isinstance(holder[key], dict):
                found[json.dumps(holder[key])] = holder[key]
    return iter(found.values())
