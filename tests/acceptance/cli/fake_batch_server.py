"""A fake of a gateway's batch routes, whose responses a test plans.

    with run_batch_server() as batches:
        batches.answer("GET", "/batches/batch_1", batch("in_progress"), batch("completed"))
        batches.asked                       the requests so far

The responses to a request are sent in turn; the last one is repeated.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

ID: Final = "batch_1"
_KEPT: Final = 1_000_000
_PIECE: Final = 256 * 1024
_THROWN_AWAY: Final = 32 * 1024 * 1024


def batch(status: str, completed: int = 0, failed: int = 0, **more: Any) -> dict[str, Any]:
    """Return a batch of ten requests."""
    return {
        "id": ID,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "model": "acme/large",
        "completion_window": "24h",
        "status": status,
        "created_at": 1_900_000_000,
        "expires_at": 1_900_086_400,
        "finalized_at": None,
        "error": None,
        "provider": None,
        "request_counts": {"total": 10, "completed": completed, "failed": failed},
        "usage": None,
        "results": None,
        **more,
    }


def result(number: int, text: str = "Grüße") -> dict[str, Any]:
    """Return a result with a reply."""
    body = {"object": "chat.completion", "choices": [{"message": {"content": text}}]}
    response = {"status_code": 200, "request_id": f"gen-batch-{number}", "body": body}
    return {"id": f"r{number}", "custom_id": f"c{number}", "response": response, "error": None}


@dataclass
class PlannedAnswer:
    """A response that a test has planned."""

    content: Any = None
    """JSON; or bytes, piece by piece."""
    status: int = 200
    breaks_off: bool = False
    """Whether the connection breaks off before the end of the response."""
    unread: bool = False
    """Whether to respond after reading only the beginning of the request's body."""
    after: threading.Event | None = None
    """The response waits for this event."""


@dataclass
class ReceivedRequest:
    """A request that was received."""

    method: str
    path: str
    headers: dict[str, str]
    size: int
    digest: str
    body: bytes
    """Its first million bytes."""


@dataclass
class FakeBatchServer:
    """The running server."""

    origin: str
    asked: list[ReceivedRequest] = field(default_factory=list)
    _answers: defaultdict[tuple[str, str], list[PlannedAnswer]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def env(self) -> dict[str, str]:
        """The environment with which a command reaches the server."""
        return {"TOLLHOUSE_BASE_URL": self.origin, "TOLLHOUSE_API_KEY": "sk-th-v1-somebody"}

    def answer(self, method: str, path: str, *answers: Any) -> None:
        """Plan the responses to a request; plain JSON is a 200."""
        self._answers[method, f"/v1{path}"] = [
            each if isinstance(each, PlannedAnswer) else PlannedAnswer(each) for each in answers
        ]

    def next_answer(self, method: str, path: str) -> PlannedAnswer:
        """Return the next planned response."""
        left = self._answers[method, path.partition("?")[0]]
        if not left:
            return PlannedAnswer({"error": {"code": 404, "message": "No such batch."}}, 404)
        return left.pop(0) if len(left) > 1 else left[0]


def large_results(count: int, text: str) -> Callable[[], Iterable[bytes]]:
    """Return a batch with so many results, generated while they are sent."""

    def pieces() -> Iterable[bytes]:
        head = batch("completed", count, results=[])
        yield json.dumps(head).removesuffix("]}").encode()
        for number in range(count):
            yield (b"," if number else b"") + json.dumps(result(number, text)).encode()
        yield b"]}"

    return pieces


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.batches = FakeBatchServer(f"http://127.0.0.1:{self.server_port}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _batches(self) -> FakeBatchServer:
        assert isinstance(self.server, _Server)
        return self.server.batches

    def _do(self) -> None:
        answer = self._batches.next_answer(self.command, self.path)
        if answer.unread:
            self._write(answer)
            self._throw_away()
            raise ConnectionError
        self._batches.asked.append(self._read())
        if answer.after is not None:
            answer.after.wait(60)
        self._write(answer)

    do_GET = do_POST = do_DELETE = _do  # noqa: N815 - the library's names

    def _read(self) -> ReceivedRequest:
        left = size = int(self.headers.get("content-length", 0))
        digest, kept = sha256(), b""
        while left:
            piece = self.rfile.read(min(left, _PIECE))
            if not piece:
                raise ConnectionError
            left -= len(piece)
            digest.update(piece)
            kept = (kept + piece)[:_KEPT]
        headers = {name.lower(): value for name, value in self.headers.items()}
        return ReceivedRequest(self.command, self.path, headers, size, digest.hexdigest(), kept)

    def _throw_away(self) -> None:
        """Read the rest of the request, so that the client can read the response."""
        left = _THROWN_AWAY
        while left > 0 and (piece := self.rfile.read1(_PIECE)):
            left -= len(piece)

    def _write(self, answer: PlannedAnswer) -> None:
        content = answer.content
        pieces = content() if callable(content) else [json.dumps(content).encode()]
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if answer.breaks_off:
            raise ConnectionError
        self.wfile.write(b"0\r\n\r\n")

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's
        del format, args


@contextmanager
def run_batch_server() -> Generator[FakeBatchServer]:
    """Run the server until the end of the block."""
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.batches
        finally:
            server.shutdown()
            thread.join()
