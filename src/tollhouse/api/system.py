"""What the root answers: health, metrics, the API's description, and a word of welcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tollhouse.api import policy
from tollhouse.api.asgi import JSON, respond
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.errors import Forbidden, MethodNotAllowed, NotFound, Unauthenticated
from tollhouse.observability.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tollhouse.api.asgi import Scope, Send
    from tollhouse.api.readiness import Readiness
    from tollhouse.identity.auth import Authenticator
    from tollhouse.observability.metrics import Metrics

_OK = 200
_UNAVAILABLE = 503
_READ = ("GET", "HEAD")


class SystemRoutes:
    """The routes outside the API."""

    def __init__(  # noqa: PLR0913 - the composition root builds it once
        self,
        *,
        version: str,
        openapi: Callable[[], bytes],
        docs: Mapping[str, tuple[bytes, bytes]],
        readiness: Readiness,
        metrics: Metrics,
        authenticator: Authenticator,
    ) -> None:
        """Take the documents and what is asked each time.

        Args:
            version: The program's.
            openapi: Renders the API's description; called once, when somebody first wants it,
                since that takes longer than everything else at start.
            docs: Content type and content of the files that show it, by their paths.
            readiness: Whether requests should be sent here.
            metrics: What was counted.
            authenticator: Who may read metrics from elsewhere.
        """
        self._render_openapi = openapi
        self._openapi: bytes | None = None
        self._rendering = asyncio.Lock()
        self._readiness = readiness
        self._metrics = metrics
        self._authenticator = authenticator
        welcome = {
            "name": "Tollhouse",
            "version": version,
            "api": "/v1",
            "docs": "/docs",
            "openapi": "/openapi.json",
        }
        fixed = {
            "/": (JSON, msgspec.json.encode(welcome)),
            "/healthz": (JSON, b'{"status":"ok"}'),
            **{path: ((b"content-type", kind), body) for path, (kind, body) in docs.items()},
        }
        self._routes: dict[str, Callable[[Scope, Mapping[bytes, bytes], Send], Awaitable[None]]] = {
            path: _fixed(header, body) for path, (header, body) in fixed.items()
        }
        self._routes["/openapi.json"] = self._describe
        self._routes["/readyz"] = self._readyz
        self._routes["/metrics"] = self._render_metrics

    async def __call__(self, scope: Scope, headers: Mapping[bytes, bytes], send: Send) -> None:
        """Answer a request.

        Raises:
            NotFound: There is no such route.
            MethodNotAllowed: It is only read.
        """
        route = self._routes.get(scope["path"])
        if route is None:
            message = "Nothing is here; the API lies under /v1."
            raise NotFound(message)
        if scope["method"] not in _READ:
            message = f"{scope['method']} is not allowed here; use GET."
            raise MethodNotAllowed(message, allow=_READ)
        await route(scope, headers, send)

    async def _describe(self, scope: Scope, headers: Mapping[bytes, bytes], send: Send) -> None:
        del scope, headers
        # One renders, the others wait: the framework cannot do it in two threads at once.
        async with self._rendering:
            if self._openapi is None:
                self._openapi = await asyncio.to_thread(self._render_openapi)
        await respond(send, _OK, [JSON], self._openapi)

    async def _readyz(self, scope: Scope, headers: Mapping[bytes, bytes], send: Send) -> None:
        del scope, headers
        problems = await self._readiness.problems()
        status = _UNAVAILABLE if problems else _OK
        body = {"status": "unavailable" if problems else "ready", "problems": problems}
        await respond(send, status, [JSON], msgspec.json.encode(body))

    async def _render_metrics(
        self, scope: Scope, headers: Mapping[bytes, bytes], send: Send
    ) -> None:
        client = scope.get("client")
        if not policy.from_loopback(None if client is None else client[0], headers):
            await self._require_management(headers)
        body = self._metrics.render()
        await respond(send, _OK, [(b"content-type", CONTENT_TYPE.encode())], body)

    async def _require_management(self, headers: Mapping[bytes, bytes]) -> None:
        key = policy.credential(headers, "/metrics")
        if key is None:
            raise Unauthenticated(policy.KEY_MISSING)
        subject = await self._authenticator.authenticate(key)
        if subject.kind is not KeyKind.MANAGEMENT:
            message = "Metrics need a management key."
            raise Forbidden(message)


def _fixed(
    header: tuple[bytes, bytes], body: bytes
) -> Callable[[Scope, Mapping[bytes, bytes], Send], Awaitable[None]]:
    async def answer(scope: Scope, headers: Mapping[bytes, bytes], send: Send) -> None:
        del scope, headers
        await respond(send, _OK, [header], body)

    return answer
