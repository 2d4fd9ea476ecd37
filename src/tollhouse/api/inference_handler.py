"""Inference by callbacks: requests for which nothing has to be waited for before a provider.

Most requests are small, come with a key that is remembered, and ask for nothing unusual. They are
answered from the callbacks of their connection. All others (a key that has to be read, a browser's
page, a large body, a client that may not pass) go through `RequestGate`, which decides the same and
can wait.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tollhouse.api import request_rules
from tollhouse.api.hot_routes import Inference
from tollhouse.identity.types import KeyKind, Subject
from tollhouse.kernel.concurrency import FairQueue
from tollhouse.kernel.errors import TollhouseError, status_of, without_frames
from tollhouse.observability.server_log import FinishedRequest, log_request

if TYPE_CHECKING:
    from tollhouse.api.exchange import Exchange
    from tollhouse.api.request_gate import PlainClient, RequestGate
    from tollhouse.inference.reply_buffer import Reply

_POST: Final = "POST"
_MOST_IN_A_TURN: Final = 16
"""Requests that begin in one turn of the event loop."""
_MOST_BESIDE_OTHERS: Final = 2
"""The same while several accounts send some."""
_BESIDE_SECONDS: Final = 1.0
"""How long that counts after an account has followed another."""


@dataclass(frozen=True, slots=True)
class _PlainHead:
    """What follows from the head of a request, for all that have the same one."""

    route: Inference
    path: str
    largest_body: int
    client: PlainClient


class _Accepted(Struct, frozen=True):
    head: _PlainHead
    subject: Subject
    began: float


class InferenceHandler:
    """Fulfils `RequestHandler` for the routes of inference behind a gate."""

    def __init__(self, gate: RequestGate) -> None:
        self._gate = gate
        self._waiting: FairQueue[Exchange] = FairQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of all requests; asked for once, since it costs a system call."""
        self._left = 0
        """How many more may begin in this turn of the event loop."""
        self._in_turn = False
        """Whether one has begun in it."""
        self._account = ""
        """Whose request was the last one."""
        self._beside_until = 0.0
        self._routes = {
            path: route for path, route in gate.routes.hot.items() if isinstance(route, Inference)
        }

    def accepts(self, exchange: Exchange) -> bool:
        """Tell whether a request is a plain one of a client that may pass."""
        head = exchange.from_head
        if not isinstance(head, _PlainHead):
            head = exchange.from_head = self._read_head(exchange)
        if head is None or int(exchange.headers[b"content-length"]) > head.largest_body:
            return False
        began = self._gate.clock.monotonic()
        subject = self._gate.admit_plain(head.client, began)
        if subject is None or subject.kind is KeyKind.MANAGEMENT:
            return False
        exchange.accepted = _Accepted(head, subject, began)
        return True

    def _read_head(self, exchange: Exchange) -> _PlainHead | None:
        path = request_rules.api_path(exchange.path)
        route = None if path is None else self._routes.get(path)
        if path is None or route is None or exchange.method != _POST:
            return None
        client = self._gate.plain_client(exchange, path)
        return None if client is None else _PlainHead(route, path, route.largest_body, client)

    def handle(self, exchange: Exchange) -> None:
        """Answer a request that was accepted, now or in a later turn of the event loop.

        A few begin in each turn, of one account after the other: however many requests an account
        sends at once, those of others wait for a few of them. One for each turn would be fairer
        still, and costs half as much again: whoever is sent something falls asleep in between.
        """
        accepted = exchange.accepted
        if not isinstance(accepted, _Accepted):
            raise TypeError("the request was not accepted")
        account = accepted.subject.account_id
        if account != self._account:
            self._account, self._beside_until = account, accepted.began + _BESIDE_SECONDS
        if not self._in_turn:
            self._in_turn = True
            is_beside = accepted.began < self._beside_until
            self._left = _MOST_BESIDE_OTHERS if is_beside else _MOST_IN_A_TURN
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._next_turn)
        if self._left:
            self._left -= 1
            self._begin(exchange, accepted)
        else:
            self._waiting.add(account, exchange)

    def _next_turn(self) -> None:
        self._in_turn = False
        while (self._left or not self._in_turn) and (exchange := self._waiting.next()) is not None:
            if not exchange.ended:
                self.handle(exchange)

    def _begin(self, exchange: Exchange, accepted: _Accepted) -> None:
        try:
            head = accepted.head
            head.route.handle(exchange, head.path, accepted.subject, self._refuse)
        except Exception as error:  # noqa: BLE001 - the edge of the request
            shown = self._gate.shown(error, exchange.method)
            self._refuse(exchange, shown, None)
            line = FinishedRequest(
                method=exchange.method,
                route=accepted.head.path,
                status=status_of(shown),
                error=shown.code,
                ms=int((self._gate.clock.monotonic() - accepted.began) * 1000),
                key_label=accepted.subject.label,
            )
            log_request(line)

    def _refuse(self, exchange: Exchange, error: TollhouseError, reply: Reply | None) -> None:
        if exchange.began:
            exchange.abort()
            return
        path = request_rules.api_path(exchange.path) or ""
        exchange.respond(*self._gate.refusal(path, without_frames(error), reply))
