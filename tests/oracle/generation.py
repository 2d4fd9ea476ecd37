"""More inputs from recorded ones: they are crossed with each other, and damaged.

    generated(recorded, random, count)  -> that many, most of them different

A request goes to every dialect of its client and to several endpoints; a reply or stream is read
for any client's request, and sent back in the next; each may have a place changed, as in `damage`,
or events that are cut, repeated, exchanged or foreign.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from tests.oracle.damage import Damage
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
        self._bodies = {
            client: [each["body"] for each in found if _is_object(each["body"])]
            for client, found in self._requests.items()
        }
        self._damage = Damage(random)

    def request(self) -> Input:
        """Return a request to any dialect and endpoint, in one of three cases damaged."""
        random = self._random
        client = random.choice(sorted(self._requests))
        asked = self._request(client, self._requests[client])
        if self._conversations and random.random() < 1 / 5:
            asked = self._continued(random.choice(self._conversations))
        if random.random() < 1 / 3:
            asked["body"] = self._damage.text(asked["body"], self._bodies[asked["client"]])
        endpoint = random.choice(PROFILES)
        return asked | ({"endpoint": endpoint} if endpoint else {})

    def reply(self) -> Input:
        """Return a reply to any client's request, in one of two cases damaged."""
        random = self._random
        dialect = random.choice(sorted(self._replies))
        origin = random.choice(sorted(self._replies)) if random.random() < 1 / 20 else dialect
        body = random.choice(self._replies[origin])
        if random.random() < 1 / 2:
            body = self._damage.text(body, self._replies[dialect])
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
        replies = self._replies[dialect]
        data = self._damage.text(self._random.choice(replies), replies)
        return {"op": "whole reply", "dialect": dialect, "data": data}

    def provider_error(self) -> Input:
        data = self._damage.text(self._random.choice(self._errors), self._errors)
        return {"op": "provider error", "data": data}

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

    def _damaged_events(self, dialect: str, events: list[str]) -> list[str]:
        random = self._random
        at, to = random.randrange(len(events) + 1), random.randrange(len(events) + 1)
        before, here, after = events[:at], events[at : at + 1], events[at + 1 :]
        moved = [*before, *after]
        moved[to:to] = here
        known = random.choice(self._events[dialect])
        other = random.choice([*self._events[random.choice(sorted(self._events))], *self._errors])
        others = self._events[dialect]
        damaged = [*before, *(self._damage.text(each, others) for each in here), *after]
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


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
