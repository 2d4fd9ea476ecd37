"""Records what tests of a whole gateway ask and what its scripted providers answer.

A plugin of pytest, which sees no more of the product than these tests do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.oracle.inputs import Input, Inputs
from tests.oracle.worker import text_of
from tests.support.scripted_providers import ScriptedProviders
from tests.support.seams.inference import EventParser

CLIENTS = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "messages",
    "/completions": "completions",
    "/embeddings": "embeddings",
}
_FAILED = 400


class OutsideRecorder:
    """Notes each request with the answers that are prepared for it."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._patched = pytest.MonkeyPatch()
        self._scripts: dict[str, list[bytes]] = {}

    def pytest_sessionstart(self) -> None:
        """Look at what is prepared and what is sent."""
        self._patched.setattr(
            ScriptedProviders, "say", self._before(ScriptedProviders.say, self._prepared)
        )
        self._patched.setattr(httpx2, "post", self._before(httpx2.post, self._sent))

    def pytest_sessionfinish(self) -> None:
        self._patched.undo()

    def _before(self, function: Callable[..., Any], note: Callable[..., None]) -> Any:
        def noted(*arguments: Any, **named: Any) -> Any:
            note(*arguments, **named)
            return function(*arguments, **named)

        return noted

    def _prepared(self, _: ScriptedProviders, provider: str, *replies: Any) -> None:
        self._scripts[provider] = [each for each in replies if isinstance(each, bytes)]

    def _sent(self, url: str, *, content: Any = None, **_: Any) -> None:
        client = next((name for path, name in CLIENTS.items() if url.endswith(path)), None)
        if client is None or not isinstance(content, str | bytes):
            return
        body = content.encode() if isinstance(content, str) else content
        for provider in self._scripts:
            if f'"t/{provider}'.encode() in body:
                self._exchanged(client, provider.removesuffix("-b"), body, self._scripts[provider])

    def _exchanged(self, client: str, provider: str, body: bytes, answers: list[bytes]) -> None:
        dialect = provider if provider in {"responses", "messages"} else "chat"
        if client in {"completions", "embeddings"}:
            dialect = client
        asked = {"op": "request", "client": client, "dialect": dialect, "body": text_of(body)}
        self._inputs.add(asked)
        for answer in answers:
            self._answered(asked, answer)

    def _answered(self, asked: Input, answer: bytes) -> None:
        head, _, body = answer.partition(b"\r\n\r\n")
        if int(head[9:12]) >= _FAILED:
            self._inputs.add({"op": "provider error", "data": text_of(body)})
        elif json.loads(asked["body"]).get("stream") and b"event-stream" in head:
            parser = EventParser()
            events = [text_of(data) for data in parser.feed(body) + parser.end()]
            stream = {"op": "stream", "events": events, "end": "as it came"}
            self._inputs.add(asked | stream | {"maker": asked["dialect"]})
        else:
            whole = {"op": "reply", "reply": text_of(body), "maker": asked["dialect"]}
            self._inputs.add(asked | whole)
            data = {"dialect": asked["dialect"], "data": text_of(body)}
            self._inputs.add({"op": "whole reply"} | data)
