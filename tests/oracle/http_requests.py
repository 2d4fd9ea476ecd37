"""What clients ask in random conversations, turn after turn.

    conversation = Conversation(seed, number, lane)
    first = conversation.first()
    then = conversation.next(first, reply)      as a client of the format goes on; None at its end

Everything is drawn from the seed and the number, so that two gateways are asked the same as long as
they answer the same.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from tests.oracle import http_material as material
from tests.oracle.http_servers import MODELS, Lane, Reply
from tests.support.format_clients import (
    Chat,
    Completions,
    FormatClient,
    Messages,
    Responses,
    TextRequest,
)
from tests.support.stream_folding import folded

PATHS: Final = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "messages": "/messages",
    "completions": "/completions",
    "embeddings": "/embeddings",
    "count": "/messages/count_tokens",
}
_CLIENTS: Final[dict[str, FormatClient]] = {
    "chat": Chat(),
    "responses": Responses(),
    "messages": Messages(),
    "completions": Completions(),
}
_OF_EACH: Final = {
    "chat": 32,
    "responses": 28,
    "messages": 28,
    "completions": 7,
    "embeddings": 5,
    "count": 3,
}
_IN_LISTS: Final = ("messages", "input", "tools", "include")
"""Fields of which a request may have those of several features."""
_RAW: Final = (
    b"",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe{}",
    b'{"model": "acme/unknown", "messages": [], "input": "a", "prompt": "a", "max_tokens": 9}',
    b'{"model": 7}',
    b"{}",
    b'{"a":' * 600 + b"1" + b"}" * 600,
)
_HEADERS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"http-referer": "https://app.example/"},
    {"x-session-id": "a session of headers", "user-agent": "an agent/1.0"},
    {"anthropic-version": "2023-06-01", "anthropic-beta": "effort-2025-11-24,nobody-knows"},
    {"x-openrouter-categories": "coding,play", "referer": "https://other.example/"},
)
_WRONG_HEADERS: Final[tuple[dict[str, str], ...]] = (
    {"authorization": "Bearer sk-th-v1-nobodys"},
    {"authorization": ""},
    {"content-type": "text/plain"},
    {"content-encoding": "br"},
)


@dataclass(frozen=True, slots=True)
class Request:
    """One question of a client."""

    form: str
    turn: int
    path: str
    """With its query."""
    body: bytes
    headers: dict[str, str]

    def fields(self) -> dict[str, Any]:
        """Return the body's fields; none if it is no JSON object."""
        try:
            read = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}

    def models(self) -> set[str]:
        """Return the models that may serve it."""
        fields = self.fields()
        more = fields.get("models")
        listed = [fields.get("model"), *(more if isinstance(more, list) else ())]
        return {each for each in listed if isinstance(each, str)}


class Conversation:
    """A random conversation in a lane."""

    def __init__(self, seed: int, number: int, lane: Lane) -> None:
        self._seed, self.number, self._lane = seed, number, lane
        draw = self.draw("conversation")
        [self.form] = draw.choices(list(_OF_EACH), list(_OF_EACH.values()))
        self._turns = draw.choice((1, 1, 2, 2, 3, 4))

    def draw(self, *what: object) -> Random:
        """Return a source of randomness for one purpose."""
        return Random("/".join(map(str, (self._seed, self.number, *what))))

    def first(self) -> Request:
        draw = self.draw("first")
        path, headers = PATHS[self.form], dict(draw.choice(_HEADERS))
        if draw.random() < 0.1:
            path += draw.choice(("?beta=true", "?a=1&b=%20", "?"))
        if draw.random() < 0.02:
            headers |= draw.choice(_WRONG_HEADERS)
        body = draw.choice(_RAW) if draw.random() < 0.02 else self._body(draw)
        return self._request(0, path, body, {"content-type": "application/json", **headers})

    def next(self, last: Request, reply: Reply) -> Request | None:
        """Return what a client asks after a reply; None if it has no more to say."""
        if last.turn + 1 >= self._turns or reply.status != 200 or not reply.whole:
            return None
        draw = self.draw("next", last.turn)
        try:
            said = _whole(self.form, reply)
            body = _FOLLOW[self.form](draw, last.fields(), said)
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None  # a client that cannot read the reply
        if draw.random() < 0.15:
            body["model"] = self._lane.model(draw.choice(MODELS))
        if draw.random() < 0.05:
            body = material.changed(draw, body)
        return self._request(last.turn + 1, last.path, json.dumps(body).encode(), last.headers)

    def _request(self, turn: int, path: str, body: bytes, headers: dict[str, str]) -> Request:
        # Its title is stored with its generation.
        title = f"{self.number}.{turn}"
        return Request(self.form, turn, path, body, {**headers, "x-title": title})

    def _body(self, draw: Random) -> bytes:
        how, form = draw.random(), "messages" if self.form == "count" else self.form
        if how < 0.3:
            said = draw.choice(material.asks(form))
            try:
                body = json.loads(said)
            except ValueError:
                return said
        elif how < 0.6 or form == "embeddings":
            body = _of_features(draw, form)
        else:
            body = _CLIENTS[form].fields("", _text_request(draw))
        if not isinstance(body, dict):
            return json.dumps(body).encode()
        for options in (_options()["every"], _options()[form]):
            if draw.random() < 0.45:
                body |= self._named(deepcopy(draw.choice(options)))
        body["model"] = self._lane.model(draw.choice(MODELS))
        if form != "embeddings" and draw.random() < 0.55:
            body["stream"] = True
        if draw.random() < 0.1:
            body = material.changed(draw, body)
        return json.dumps(body, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")

    def _named(self, value: Any) -> Any:
        """Return options with the lane's providers and models in place of their names."""
        if isinstance(value, dict):
            return {name: self._named(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._named(each) for each in value]
        kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
        if kind == "model":
            return self._lane.model(name)
        return self._lane.provider(name) if kind == "provider" else value


@cache
def _options() -> dict[str, list[dict[str, Any]]]:
    return yaml.safe_load(Path(__file__).with_name("http_options.yaml").read_bytes())


def _of_features(draw: Random, form: str) -> dict[str, Any]:
    if form == "embeddings":
        return {"input": material.text(draw)}
    body = _CLIENTS[form].fields("", TextRequest(text=material.text(draw)))
    for _ in range(draw.randrange(1, 5)):
        for name, value in deepcopy(draw.choice(material.features_of(form))).items():
            both = name in _IN_LISTS and isinstance(value, list)
            before = body.get(name)
            body[name] = before + value if both and isinstance(before, list) else value
    return body


def _text_request(draw: Random) -> TextRequest:
    names = ("look", "get_weather", "apply_patch", "a.name/with signs", "long_" * 20)
    tools = tuple(draw.sample(names, draw.choice((0, 0, 1, 2, 3))))
    asked = TextRequest(
        text=material.LONG if draw.random() < 0.005 else material.text(draw),
        tools=tools,
        forced=draw.choice(tools) if tools and draw.random() < 0.2 else None,
        one_call=bool(tools) and draw.random() < 0.2,
        image=draw.random() < 0.15,
        json=draw.random() < 0.15,
        stop=draw.choice((None, None, "END")),
        limit=draw.choice((None, 1, 100, 3000)),
        thinks=draw.choice((None, None, True, False)),
    )
    return replace(asked, forced=None) if asked.thinks else asked


def _whole(form: str, reply: Reply) -> dict[str, Any]:
    if not dict(reply.headers)["content-type"].startswith("text/event-stream"):
        return json.loads(reply.body)
    data = [
        line.removeprefix(b"data: ")
        for line in reply.body.split(b"\n")
        if line.startswith(b"data: ") and line != b"data: [DONE]"
    ]
    return folded(form, [json.loads(each) for each in data])


# How a client of each format goes on: with the results of the calls, or with another text.


def _after_chat(draw: Random, body: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    message = said["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": material.text(draw)}
        for call in message.get("tool_calls") or ()
    ]
    then = results or [{"role": "user", "content": material.text(draw)}]
    return body | {"messages": [*body["messages"], message, *then]}


def _after_responses(draw: Random, body: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    given, output = body["input"], said["output"]
    listed = [{"role": "user", "content": given}] if isinstance(given, str) else given
    results = [
        {
            "type": f"{item['type']}_output",
            "call_id": item["call_id"],
            "output": material.text(draw),
        }
        for item in output
        if item["type"] in {"function_call", "custom_tool_call"}
    ]
    then = results or [{"role": "user", "content": material.text(draw)}]
    return body | {"input": [*listed, *output, *then]}


def _after_messages(draw: Random, body: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": material.text(draw)}
        for block in said["content"]
        if block["type"] == "tool_use"
    ]
    turns = [
        {"role": "assistant", "content": said["content"]},
        {"role": "user", "content": results or material.text(draw)},
    ]
    return body | {"messages": [*body["messages"], *turns]}


def _after_completions(draw: Random, body: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return body | {"prompt": body["prompt"] + said["choices"][0]["text"] + material.text(draw)}


def _after_embeddings(draw: Random, body: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return body | {"input": [material.text(draw) for _ in said["data"]]}


_FOLLOW: Final = {
    "chat": _after_chat,
    "responses": _after_responses,
    "messages": _after_messages,
    "completions": _after_completions,
    "embeddings": _after_embeddings,
}
