"""Routes outside the API (health, metrics, the API's description), and whether requests may come.

`Readiness` tells whether requests should be sent to this process. While it starts,
`LateControlPlane` keeps those for the control plane back, `Recovery` those for batches and interns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from tollhouse.api import request_rules
from tollhouse.api.asgi import JSON, App, Receive, Scope, Send, respond
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.errors import (
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from tollhouse.observability.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.identity.access import Authenticator
    from tollhouse.observability.merging import Family
    from tollhouse.storage.database import Database


class Recovery:
    """Keeps requests back while what a killed server left of their kind is being tidied."""

    PATIENCE_SECONDS: Final = 5.0
    """Half of the time that an operation on interns may take."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._over.set()

    def begin(self) -> None:
        """Keep requests back from now on."""
        self._over.clear()

    def finish(self) -> None:
        """Let those that wait go on, and all later ones pass."""
        self._over.set()

    async def wait(self) -> None:
        """Return when it is over.

        Raises:
            Unavailable: It takes longer than a client should wait.
        """
        if self._over.is_set():
            return
        try:
            async with asyncio.timeout(self.PATIENCE_SECONDS):
                await self._over.wait()
        except TimeoutError:
            raise _unavailable("recovering") from None


class ControlPlane(NamedTuple):
    """The application of all routes but the hot ones, and what describes the whole API."""

    app: App
    describe: Callable[[], bytes]
    """Takes a while; for a thread."""


class LateControlPlane:
    """The control plane's place while it is being loaded: its requests wait there."""

    def __init__(self) -> None:
        """Begin without one; must run inside the event loop."""
        self._opened: asyncio.Future[ControlPlane] = asyncio.get_running_loop().create_future()

    def open(self, control: ControlPlane) -> None:
        """Let requests that wait go on, and all later ones pass."""
        self._opened.set_result(control)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; this is an ASGI application.

        Raises:
            Unavailable: Loading takes longer than a client should wait.
        """
        control = await self.opened()
        await control.app(scope, receive, send)

    async def describe(self) -> bytes:
        """Return the API's description in OpenAPI.

        Raises:
            Unavailable: As above.
        """
        control = await self.opened()
        return await asyncio.to_thread(control.describe)

    async def opened(self) -> ControlPlane:
        """Return the control plane once it is there; Unavailable as above."""
        if self._opened.done():
            return self._opened.result()
        try:
            async with asyncio.timeout(Recovery.PATIENCE_SECONDS):
                return await asyncio.shield(self._opened)
        except TimeoutError:
            raise _unavailable("starting") from None


def _unavailable(doing: str) -> Unavailable:
    message = f"The gateway has just started and is still {doing}; try again in a moment."
    return Unavailable(message, retry_after=1)


class Siblings:
    """The other processes of this server; it is alone unless it is told how to ask them."""

    def __init__(self) -> None:
        self.count_workers: Callable[[], Awaitable[int]] | None = None
        """Tells how many answer requests to models."""
        self.report: Callable[[], Awaitable[Sequence[Family]]] | None = None
        """Returns what they count, all together."""


class Readiness:
    """Ready while every route is there, the database answers and nobody told us to stop."""

    def __init__(
        self, database: Database, control: LateControlPlane, siblings: Siblings | None = None
    ) -> None:
        self._database = database
        self._control = control
        self.siblings = siblings or Siblings()
        self.stopping = False

    async def problems(self) -> dict[str, str]:
        """Return what stands in the way, a name and a reason each; nothing when ready.

        During a start it waits as a request for the control plane does.
        """
        problems: dict[str, str] = {}
        if self.stopping:
            problems["shutdown"] = "the gateway is stopping"
        else:
            try:
                await self._control.opened()
            except Unavailable as error:
                problems["start"] = error.message
            count_workers = self.siblings.count_workers
            if count_workers is not None and not await count_workers():
                problems["workers"] = "no process answers requests to models"
        try:
            await self._database.ping()
        except (OSError, SQLAlchemyError) as error:
            problems["database"] = f"it does not answer ({type(error).__name__})"
        return problems


_OK = 200
_UNAVAILABLE = 503
_READ = ("GET", "HEAD")
_ASKED = frozenset(("/openapi.json", "/readyz", "/metrics"))
"""Routes whose answer is not there from the beginning."""


class SystemRoutes:
    """The routes outside the API."""

    def __init__(  # noqa: PLR0913 - the composition root builds it once
        self,
        *,
        version: str,
        openapi: Callable[[], Awaitable[bytes]],
        docs: Mapping[str, tuple[bytes, bytes]],
        readiness: Readiness,
        metrics: Metrics,
        authenticator: Authenticator,
    ) -> None:
        """Take the documents and what is asked each time.

        `openapi` renders the API's description when somebody first wants it, since that takes
        longer than all else at start; `docs` has type and content of the files that show it.
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
        self._fixed = {
            "/": (JSON, msgspec.json.encode(welcome)),
            "/healthz": (JSON, b'{"status":"ok"}'),
            **{path: ((b"content-type", kind), body) for path, (kind, body) in docs.items()},
        }

    async def __call__(self, scope: Scope, headers: Mapping[bytes, bytes], send: Send) -> None:
        """Answer a request.

        Raises:
            NotFound: There is no such route.
            MethodNotAllowed: It is only read.
        """
        path: str = scope["path"]
        if path not in self._fixed and path not in _ASKED:
            raise NotFound("Nothing is here; the API lies under /v1.")
        if scope["method"] not in _READ:
            raise MethodNotAllowed(f"{scope['method']} is not allowed here; use GET.", allow=_READ)
        match path:
            case "/openapi.json":
                await self._describe(send)
            case "/readyz":
                await self._readyz(send)
            case "/metrics":
                await self._render_metrics(scope, headers, send)
            case _:
                header, body = self._fixed[path]
                await respond(send, _OK, [header], body)

    async def _describe(self, send: Send) -> None:
        # One renders, the others wait: the framework cannot do it in two threads at once.
        async with self._rendering:
            if self._openapi is None:
                self._openapi = await self._render_openapi()
        await respond(send, _OK, [JSON], self._openapi)

    async def _readyz(self, send: Send) -> None:
        problems = await self._readiness.problems()
        status = _UNAVAILABLE if problems else _OK
        body = {"status": "unavailable" if problems else "ready", "problems": problems}
        await respond(send, status, [JSON], msgspec.json.encode(body))

    async def _render_metrics(
        self, scope: Scope, headers: Mapping[bytes, bytes], send: Send
    ) -> None:
        client = scope.get("client")
        if not request_rules.from_loopback(None if client is None else client[0], headers):
            key = request_rules.credential(headers, "/metrics")
            if key is None:
                raise Unauthenticated(request_rules.KEY_MISSING)
            if (await self._authenticator.authenticate(key)).kind is not KeyKind.MANAGEMENT:
                raise Forbidden("Metrics need a management key.")
        report = self._readiness.siblings.report
        body = self._metrics.render(() if report is None else await report())
        await respond(send, _OK, [(b"content-type", CONTENT_TYPE.encode())], body)
