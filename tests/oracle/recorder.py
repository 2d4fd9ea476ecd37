"""Records what tests ask of the formats: requests, replies and streams, not what comes of them.

A plugin of pytest. It wraps the classes of this version, so it is the second file that a rewrite
changes; a file that was recorded before remains good for it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from tests.oracle.inputs import Input, Inputs
from tests.oracle.worker import text_of
from tests.support.seams import formats
from tests.support.seams.formats import DIALECTS, AdaptedStream, FormatAdapter
from tests.support.seams.inference import FORMATS, PROVIDER_FORMATS, Adapters
from tollhouse.kernel.errors import TollhouseError

NAMES = {dialect: name for name, dialect in DIALECTS.items()}
ASKED = {
    "chat": {"messages": [{"role": "user", "content": "hello"}]},
    "responses": {"input": "hello"},
    "messages": {"messages": [{"role": "user", "content": "hello"}]},
    "completions": {"prompt": "hello"},
    "embeddings": {"input": "hello"},
}
PLAIN = {name: json.dumps({"model": "acme/large", **body}) for name, body in ASKED.items()}
"""A request of each client, for replies that were read without one."""


class Recorder:
    """Notes inputs while tests run."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._undo: list[Callable[[], None]] = []
        self._requests: dict[int, tuple[Any, Input]] = {}
        """By the identity of what came of it, which is kept so that it remains the only one."""
        self._streams: dict[int, tuple[Any, Input]] = {}
        self._is_inside = False

    def pytest_sessionstart(self) -> None:
        """Wrap the classes."""
        api_format = type(FORMATS["/chat/completions"])
        self._wrap(api_format, "parse", after=self._parsed)
        for name in ("__getitem__", "without_content", "reader"):
            self._wrap(Adapters, name, after=self._derived, notes_inside=True)
        for kind in _subclasses(FormatAdapter):
            self._wrap(kind, "without_content", after=self._derived, notes_inside=True)
            self._wrap(kind, "render_request", before=self._asked)
            self._wrap(kind, "unsupported_parameters", before=self._asked)
            self._wrap(kind, "parse_response", before=self._replied)
            self._wrap(kind, "open_stream", after=self._opened)
        for kind in {*AdaptedStream.__mro__[:-1], *_subclasses(AdaptedStream)}:
            self._wrap(kind, "feed", before=self._fed)
            self._wrap(kind, "end", before=functools.partial(self._ended, "end"))
            self._wrap(kind, "fail", before=functools.partial(self._ended, "fail"))
        for api_format in FORMATS.values():
            client = NAMES[api_format.dialect]
            for name, note in (("parse_body", self._body), ("render_error", self._client_error)):
                noted = functools.partial(note, client)
                self._replace(api_format, name, self._before(getattr(api_format, name), noted))
        for provider in PROVIDER_FORMATS.values():
            read = functools.partial(self._read, NAMES[provider.dialect])
            self._replace(provider, "parse_response", self._before(provider.parse_response, read))
            decoded = functools.partial(self._decoded, NAMES[provider.dialect])
            self._replace(provider, "stream_decoder", self._after(provider.stream_decoder, decoded))
        read_error = self._before(formats.read_error, self._provider_error)
        self._replace(formats, "read_error", read_error)

    def pytest_sessionfinish(self) -> None:
        """Leave the classes as they were."""
        while self._undo:
            self._undo.pop()()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Any:
        """Take the streams of each test when it has ended."""
        result = yield
        self.take_streams()
        return result

    def take_streams(self) -> None:
        """Add the streams that were opened, as far as they came."""
        for _, asked in self._streams.values():
            self._inputs.add(asked)
        self._streams.clear()
        self._requests.clear()

    # What is noted

    def _body(self, client: str, body: bytes) -> None:
        for one, dialect in formats.PAIRS:
            if one == client:
                self._inputs.add(_request(client, dialect, body))

    def _parsed(self, made: Any, api_format: Any, body: bytes, headers: Any, query: bytes) -> None:
        asked = {
            "op": "request",
            "client": NAMES[api_format.dialect],
            "body": text_of(body),
            "headers": {text_of(name): text_of(value) for name, value in headers.items()},
            "query": text_of(query),
        }
        self._requests[id(made)] = made, {name: value for name, value in asked.items() if value}

    def _derived(self, made: Any, origin: Any, *arguments: Any, **_: Any) -> None:
        del arguments
        if id(origin) not in self._requests:
            return
        asked = dict(self._requests[id(origin)][1])
        if isinstance(made, FormatAdapter):
            asked["dialect"] = NAMES[made.dialect]
        self._requests.setdefault(id(made), (made, asked))

    def _asked(self, adapter: Any, endpoint: Any) -> None:
        if id(adapter) in self._requests:
            said = _endpoint(endpoint)
            asked = self._requests[id(adapter)][1]
            self._inputs.add(asked | ({"endpoint": said} if said else {}))

    def _replied(self, adapter: Any, body: bytes) -> None:
        if id(adapter) in self._requests:
            asked = self._requests[id(adapter)][1]
            self._inputs.add(asked | {"op": "reply", "reply": text_of(body)})
            self._whole(asked["dialect"], body)

    def _whole(self, dialect: str, body: bytes) -> None:
        self._inputs.add({"op": "whole reply", "dialect": dialect, "data": text_of(body)})

    def _opened(self, stream: Any, adapter: Any, identity: Any) -> None:
        if id(adapter) in self._requests:
            asked = self._requests[id(adapter)][1] | {"op": "stream", "events": [], "end": None}
            known = {"maker": identity.maker, "tokens": identity.input_tokens}
            asked |= {name: value for name, value in known.items() if value}
            self._streams[id(stream)] = stream, asked

    def _fed(self, stream: Any, data: bytes) -> None:
        if id(stream) in self._streams:
            self._streams[id(stream)][1]["events"].append(text_of(data))

    def _ended(self, how: str, stream: Any, given: Any) -> None:
        if id(stream) not in self._streams or self._streams[id(stream)][1]["end"]:
            return
        asked = self._streams[id(stream)][1]
        asked["end"] = how
        if isinstance(given, TollhouseError) and (error := _error(given)):
            asked["error"] = error

    def _client_error(self, client: str, error: TollhouseError, generation: str | None) -> None:
        if said := _error(error):
            asked = {"op": "client error", "client": client, "error": said}
            self._inputs.add(asked | {"generation": generation})

    def _provider_error(self, body: bytes) -> None:
        self._inputs.add({"op": "provider error", "data": text_of(body)})

    def _read(self, dialect: str, body: bytes) -> None:
        for client, other in formats.PAIRS:
            if other == dialect:
                asked = _request(client, dialect, PLAIN[client].encode())
                self._inputs.add(asked | {"op": "reply", "reply": text_of(body)})

    def _decoded(self, dialect: str, decoder: Any) -> None:
        """Note what a decoder is fed, as if every client had asked for it."""
        events: list[str] = []
        for client, other in formats.PAIRS:
            if other == dialect and client != dialect:
                asked = _request(client, dialect, PLAIN[client].encode())
                asked |= {"op": "stream", "events": events, "end": "as it came"}
                self._streams[id(asked)] = decoder, asked
        decoder.feed = self._before(decoder.feed, lambda data: events.append(text_of(data)))

    # How it is noted

    def _wrap(
        self,
        kind: type,
        name: str,
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
        notes_inside: bool = False,
    ) -> None:
        """Call a function before or after a method, if this very class has it."""
        method = kind.__dict__.get(name)
        if not callable(method):
            return
        wrapped = self._before(method, before) if before else method
        if after:
            wrapped = self._after(wrapped, after, notes_inside=notes_inside)
        self._replace(kind, name, wrapped)

    def _replace(self, holder: Any, name: str, value: Any) -> None:
        """Set an attribute, of a frozen object too."""
        setter = type.__setattr__ if isinstance(holder, type) else object.__setattr__
        was = getattr(holder, name)
        self._undo.append(lambda: setter(holder, name, was))
        setter(holder, name, value)

    def _before(self, function: Any, note: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def noted(*arguments: Any, **named: Any) -> Any:
            if self._is_inside:
                return function(*arguments, **named)
            note(*arguments, **named)
            return self._inside(function, *arguments, **named)

        return noted

    def _after(
        self, function: Any, note: Callable[..., None], *, notes_inside: bool = False
    ) -> Any:
        @functools.wraps(function)
        def noted(*arguments: Any, **named: Any) -> Any:
            if self._is_inside and not notes_inside:
                return function(*arguments, **named)
            made = self._inside(function, *arguments, **named)
            note(made, *arguments, **named)
            return made

        return noted

    def _inside(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call a function of the formats; what it calls itself is not noted."""
        was_inside, self._is_inside = self._is_inside, True
        try:
            return function(*arguments, **named)
        finally:
            self._is_inside = was_inside


def _subclasses(kind: type) -> list[type]:
    return [kind, *(each for below in kind.__subclasses__() for each in _subclasses(below))]


def _request(client: str, dialect: str, body: bytes) -> Input:
    return {"op": "request", "client": client, "body": text_of(body), "dialect": dialect}


def _endpoint(endpoint: Any) -> Input:
    """Return the fields of an endpoint that tests give it, and those of its profile."""
    usual = formats.endpoint()
    found = _changed(endpoint, usual, leave_out={"price", "dialects", "profile", "provider_name"})
    profile = _changed(endpoint.profile, usual.profile, leave_out=set())
    return found | ({"profile": profile} if profile else {})


def _changed(value: Any, usual: Any, leave_out: set[str]) -> Input:
    names = [each.name for each in fields(value) if each.name not in leave_out]
    return {
        name: sorted(own) if isinstance(own, frozenset) else own
        for name in names
        if (own := getattr(value, name)) != getattr(usual, name)
    }


def _error(error: TollhouseError) -> Input | None:
    """Return an error as JSON; None for one that has more than that."""
    try:
        return json.loads(json.dumps({"kind": type(error).__name__, "facts": vars(error)}))
    except TypeError:
        return None
