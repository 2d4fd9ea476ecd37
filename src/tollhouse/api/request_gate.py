"""The gate that every request passes first, with these checks in this order.

    1  one Host, at most one credential    400
    2  rate of the client's address        429
    3  origin of a browser's page          400, and the answer to a preflight
    4  token of an intern's daemon         to that daemon
    5  key                                 401
    6  regional host name                  403
    7  a compressed body                   415
    8  the route: hot ones from a dict, all others from the control plane

Whatever is refused or fails, here or behind, becomes an envelope here; a stack trace never leaves.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from tollhouse.api import request_rules
from tollhouse.api.asgi import App, Message, Receive, Scope, Send, respond
from tollhouse.api.errors import error_response, retry_hint, with_reason
from tollhouse.api.request_bodies import ClientGone, read_body
from tollhouse.api.system import Recovery, SystemRoutes
from tollhouse.identity.access import (
    CALLER,
    Authenticator,
    has_daemon_token,
    hash_key,
    set_caller,
)
from tollhouse.identity.types import Caller, LocalOperator, Subject
from tollhouse.interns.sandboxes import PortForwarder
from tollhouse.kernel.errors import (
    Bug,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    RateLimited,
    RateWindow,
    TimedOut,
    TollhouseError,
    Unauthenticated,
    status_of,
    without_frames,
)
from tollhouse.kernel.request_scope import set_deadline, set_origin
from tollhouse.observability.server_log import FinishedRequest, log_request
from tollhouse.storage import failures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.api.address_table import AddressTable
    from tollhouse.api.exchange import Exchange
    from tollhouse.api.hot_routes import HotRoute
    from tollhouse.inference.reply_buffer import Reply
    from tollhouse.kernel.clock import Clock
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.sections import ServerSettings


_log = structlog.get_logger(__name__)
_MOST_ADDRESSES = 100_000
_MINUTE_SECONDS = 60.0
_ROUNDING = 0.25
"""How early a request may come, in intervals: sums of fractions are off by less, and without it
the last request of a burst would be lost."""
_PREFLIGHT = b"access-control-request-method"
_NO_CONTENT = 204
_CLIENT_GONE = 499
_CONTROL = "tollhouse.control"
_DAEMON = "tollhouse.daemon"
_DAEMON_ROUTE = "/interns/{internId}/daemon"
"""What is logged of a request to a daemon, and whose errors its refusals look like."""
_SWITCHED = 101
_PAGES = {"ws": "http", "wss": "https"}
"""Scheme of a WebSocket -> that of the pages of the same origin."""
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_EXPOSED = (
    b"x-generation-id, x-max-tokens, retry-after, "
    b"x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"
)


def takes_websocket(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Tell whether a request with these headers may become a WebSocket: one for a daemon may."""
    return has_daemon_token(dict(headers).get(b"authorization"))


@dataclass(frozen=True, slots=True)
class Routes:
    """What lies behind the gate."""

    hot: Mapping[str, HotRoute]
    """Path below the version segment -> its route."""
    control: App
    system: SystemRoutes
    doors: PortForwarder = field(default_factory=PortForwarder)
    """To the daemons of interns."""
    recovery: Recovery = field(default_factory=Recovery)


@dataclass(frozen=True, slots=True, repr=False)
class PlainClient:
    """Who sends requests, by their heads."""

    secret_hash: str
    """Of the text of the key."""
    address: str


class RequestGate:
    """The ASGI application that the server calls."""

    def __init__(  # noqa: PLR0913 - the composition root builds it once
        self,
        routes: Routes,
        authenticator: Authenticator,
        settings: ServerSettings,
        clock: Clock,
        metrics: Metrics,
        *,
        local: bool = False,
    ) -> None:
        """Take what lies behind. `local`: who can open the socket is the operator, keyless."""
        self.routes = routes
        self._authenticator = authenticator
        self._settings = settings
        self.clock = clock
        self._metrics = metrics
        self._local = local
        self.rate = AddressRate(settings.max_requests_per_address_per_minute)
        self._origins = frozenset(origin.lower() for origin in settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a WebSocket is one to an intern's daemon."""
        if scope["type"] == "websocket":
            scope["method"], send = "GET", _denying(send)
        elif scope["type"] != "http":
            return
        started = _Started(send)
        began = self.clock.monotonic()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            await self._handle(scope, headers, receive, started.send)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the edge of the request
            if isinstance(error, TollhouseError):
                started.error = error.code
            await self._fail(scope, headers, started, self.shown(error, scope["method"]))
        finally:
            # A generation is logged at its own end, which may come later.
            if "tollhouse.exchange" not in scope:
                self._log_request(scope, started, began)

    def plain_client(self, exchange: Exchange, path: str) -> PlainClient | None:
        """Return who sends a request, if nothing in its head speaks against `admit_plain`.

        It is None for all that has to go through the gate itself, whatever that says of it.
        """
        headers, settings = exchange.headers, self._settings
        if len(exchange.fields) != len(headers) or b"host" not in headers or b"origin" in headers:
            return None
        if self._local or settings.regional_hostnames or b"content-encoding" in headers:
            return None
        key = request_rules.credential(headers, path)
        if key is None:
            return None
        address = request_rules.client_address(
            exchange.peer or "", headers.get(b"x-forwarded-for"), settings.trusted_proxies
        )
        return PlainClient(hash_key(key), address)

    def admit_plain(self, client: PlainClient, now: float) -> Subject | None:
        """Return the subject of a client whose request every check lets pass without waiting.

        It is None as above. A request that is let pass counts for its address.
        """
        subject = self._authenticator.known(client.secret_hash)
        return None if subject is None or self.rate.wait(client.address, now) else subject

    def shown(self, error: Exception, method: str) -> TollhouseError:
        """Return what a client is told of whatever went wrong; log what is not its own fault."""
        if isinstance(error, TollhouseError):
            return without_frames(error)
        unavailable = failures.unavailable(error)
        if unavailable is None:
            _log.error("request_failed", method=method, exc_info=error)
        else:
            _log.error("storage_unavailable", reason=failures.reason(error))
        return unavailable or Bug("unexpected")

    def refusal(
        self, path: str, error: TollhouseError, reply: Reply | None
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return status, headers and body with which a request is refused, and count it."""
        self._metrics.count_refusal(status_of(error))
        hot = self.routes.hot.get(path)
        shown = None
        if hot is not None:
            shown = hot.refuse(error, None if reply is None else reply.generation_id)
        status, fields, body = error_response(with_reason(error, path), shown)
        if reply is not None and reply.booked:
            fields.append((b"x-generation-id", reply.generation_id.encode()))
        return status, fields, body

    async def _handle(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        request_rules.require_unambiguous(scope["http_version"], scope["headers"], headers)
        if not self._local:
            self._count_address(scope, headers)
        if (origin := headers.get(b"origin")) is not None:
            self._check_origin(scope, headers, origin)
            send = _with_origin(send, origin)
            if scope["method"] == "OPTIONS" and _PREFLIGHT in headers:
                await _preflight(headers, send)
                return
        authorization = headers.get(b"authorization")
        if authorization is not None and has_daemon_token(authorization):
            scope[_DAEMON] = True
            door = self.routes.doors.of(authorization)
            # Imported here: an intern runs, so its WebSockets are worth their 30 ms now.
            from tollhouse.api import intern_daemons  # noqa: PLC0415

            await intern_daemons.relay(door, scope, receive, send)
            return
        path = request_rules.api_path(scope["path"])
        if path is None:
            await self.routes.system(scope, headers, send)
        else:
            await self._api(scope, path, headers, receive, send)

    async def _api(
        self, scope: Scope, path: str, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        if not request_rules.is_open(scope["method"], path):
            set_caller(scope, await self._caller(headers, path))
        if self._settings.regional_hostnames:
            self._check_region(scope, headers)
        request_rules.require_plain(headers)
        hot = self.routes.hot.get(path)
        if hot is not None:
            if scope["method"] != "POST":
                message = f"{scope['method']} is not allowed here; use POST."
                raise MethodNotAllowed(message, allow=("POST",))
            await hot(scope, headers, receive, send)
            return
        if request_rules.below(path, request_rules.AFTER_RECOVERY):
            await self.routes.recovery.wait()
        inner: Scope = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        scope[_CONTROL] = inner
        set_origin(inner, self._own_origin(scope, headers))
        if request_rules.reads_itself(scope["method"], path):
            await self._control(inner, path, receive, send)
            return
        body = await read_body(receive, headers, self._settings.control_body_limit_bytes)
        await self._control(inner, path, _replay(body, receive), send)

    async def _control(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        """Pass a request on to the control plane, for as long as its route has.

        A route that streams lifts the limit once its answer has begun.

        Raises:
            TimedOut: It took longer.
        """
        seconds = request_rules.deadline(path)
        limit = asyncio.timeout(seconds)
        set_deadline(scope, limit)
        try:
            async with limit:
                await self.routes.control(scope, receive, send)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the route's own, and no answer to anybody
            raise TimedOut(f"The operation timed out after {seconds} seconds.") from error

    # The gates

    def _count_address(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        peer = _peer(scope) or ""
        address = request_rules.client_address(
            peer, headers.get(b"x-forwarded-for"), self._settings.trusted_proxies
        )
        wait = self.rate.wait(address, self.clock.monotonic())
        if wait:
            message = "Too many requests from this address."
            raise RateLimited(
                message,
                metadata={"error_type": RateLimited.code},
                window=RateWindow(
                    limit=self._settings.max_requests_per_address_per_minute,
                    remaining=0,
                    resets_at=self.clock.now() + timedelta(seconds=wait),
                ),
                retry_after=retry_hint(request_rules.api_path(scope["path"]) or "", wait),
            )

    def _check_origin(self, scope: Scope, headers: Mapping[bytes, bytes], origin: bytes) -> None:
        host, scheme = self._host(scope, headers), self._scheme(scope, headers)
        if not request_rules.origin_allowed(origin, host, scheme, self._origins):
            raise Invalid("This origin may not call the API; list it in server.cors_origins.")

    async def _caller(self, headers: Mapping[bytes, bytes], path: str) -> Caller:
        if self._local:
            return LocalOperator()
        key = request_rules.credential(headers, path)
        strict = request_rules.below(path, request_rules.STRICT_KEY_TEXT)
        if key is None:
            raise Unauthenticated(
                request_rules.KEY_INVALID_OR_MISSING if strict else request_rules.KEY_MISSING
            )
        try:
            return await self._authenticator.authenticate(key)
        except Unauthenticated:
            if strict:
                raise Unauthenticated(request_rules.KEY_INVALID_OR_MISSING) from None
            raise

    def _check_region(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        host = self._host(scope, headers) or b""
        if request_rules.is_regional(host.decode("latin-1"), self._settings.regional_hostnames):
            raise Forbidden(request_rules.REGION_REFUSED)

    def _host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bytes | None:
        forwarded = headers.get(b"x-forwarded-host")
        if forwarded and request_rules.is_trusted(_peer(scope), self._settings.trusted_proxies):
            return forwarded.split(b",")[0].strip()
        return headers.get(b"host")

    def _scheme(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        forwarded = headers.get(b"x-forwarded-proto")
        if forwarded and request_rules.is_trusted(_peer(scope), self._settings.trusted_proxies):
            return forwarded.split(b",")[0].strip().decode("latin-1").lower()
        scheme: str = scope["scheme"]
        return _PAGES.get(scheme, scheme)

    def _own_origin(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Return our own address, as the caller wrote it if that is one."""
        host = (self._host(scope, headers) or b"").decode("latin-1").lower()
        if not request_rules.is_host(host):
            server: tuple[str, int] | None = scope.get("server")
            host = "localhost" if server is None else f"{server[0]}:{server[1]}"
        return f"{self._scheme(scope, headers)}://{host}"

    # Failures

    def _log_request(self, scope: Scope, started: _Started, began: float) -> None:
        path = _path(scope)
        caller: Caller | None = scope.get(CALLER)
        line = FinishedRequest(
            method=scope["method"] if scope["method"] in _METHODS else None,
            route=path if path in self.routes.hot or _DAEMON in scope else _template(scope),
            status=started.status or _CLIENT_GONE,
            error=started.error,
            ms=int((self.clock.monotonic() - began) * 1000),
            key_label=caller.label if isinstance(caller, Subject) else None,
            caller="operator" if isinstance(caller, LocalOperator) else None,
        )
        # Monitors ask for health and metrics without end.
        log_request(line, logging.DEBUG if path is None and started.error is None else logging.INFO)

    async def _fail(
        self, scope: Scope, headers: Mapping[bytes, bytes], started: _Started, error: TollhouseError
    ) -> None:
        path, reply = _path(scope) or "", scope.get("tollhouse.exchange")
        status, fields, body = self.refusal(path, error, reply)
        if started.begun:
            # Nothing legal can follow a head that has left: the server closes the connection.
            return
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() in self._origins:
            fields.extend(_origin_headers(origin))
        await respond(started.send, status, fields, body)


class AddressRate:
    """At most so many requests a minute from one address (GCRA, one number for each address).

    Source: ITU-T I.371, the generic cell rate algorithm in its virtual scheduling form.
    """

    def __init__(self, per_minute: int) -> None:
        self.shared: AddressTable | None = None
        """Where several processes count together."""
        self._interval = _MINUTE_SECONDS / per_minute
        self._due: dict[str, float] = {}

    def wait(self, address: str, now: float) -> float:
        """Count a request; 0 where it may pass, otherwise the seconds after which one may."""
        known = self._due if self.shared is None else self.shared
        due = max(known.get(address, now), now)
        excess = due - now - (_MINUTE_SECONDS - self._interval)
        if excess > self._interval * _ROUNDING:
            return excess
        if len(self._due) >= _MOST_ADDRESSES:
            self._forget(now)
        known[address] = due + self._interval
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget idle addresses; all of them where none is idle, so that memory has a bound."""
        busy = {address: due for address, due in self._due.items() if due > now}
        self._due = busy if len(busy) < _MOST_ADDRESSES else {}


class _Started:
    """Remembers whether the head of the response has left."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        self.status: int | None = None
        self.error: str | None = None
        """Type of the error with which the gate refused it."""

    async def send(self, message: Message) -> None:
        self.begun = True
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "websocket.accept":
            self.status = _SWITCHED
        await self._send(message)


def _denying(send: Send) -> Send:
    """Send an answer to a WebSocket's request that does not open it.

    Source: https://asgi.readthedocs.io/en/latest/extensions.html#websocket-denial-response
    """

    async def sent(message: Message) -> None:
        if message["type"].startswith("http."):
            message = {**message, "type": f"websocket.{message['type']}"}
        await send(message)

    return sent


def _path(scope: Scope) -> str | None:
    """Return the route's path below the version segment; None where it has none."""
    return _DAEMON_ROUTE if _DAEMON in scope else request_rules.api_path(scope["path"])


def _template(scope: Scope) -> str | None:
    """Return the route that a request had on the control plane; its path may name anything."""
    return getattr(scope.get(_CONTROL, {}).get("route"), "path", None)


def _peer(scope: Scope) -> str | None:
    client: tuple[str, int] | None = scope.get("client")
    return None if client is None else client[0]


def _replay(body: bytes, receive: Receive) -> Receive:
    first: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replayed() -> Message:
        nonlocal first
        if first is not None:
            message, first = first, None
            return message
        return await receive()

    return replayed


def _origin_headers(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    ]


def _with_origin(send: Send, origin: bytes) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[Any] = list(message.get("headers", ()))
            message = {**message, "headers": [*headers, *_origin_headers(origin)]}
        await send(message)

    return with_headers


async def _preflight(headers: Mapping[bytes, bytes], send: Send) -> None:
    """Answer a preflight of an allowed origin; it carries no key.

    Source: https://fetch.spec.whatwg.org/#cors-preflight-fetch
    """
    wanted = headers.get(b"access-control-request-headers", b"authorization, content-type")
    fields = [
        (b"access-control-allow-methods", b"GET, POST, PATCH, PUT, DELETE"),
        (b"access-control-allow-headers", wanted),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": _NO_CONTENT, "headers": fields})
    await send({"type": "http.response.body", "body": b""})
