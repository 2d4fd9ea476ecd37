"""A guardrail on loopback that gives a verdict by the path of the request."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

YES: Final = b'{"allowed": true}'
ANSWERS: Final[dict[str, tuple[int, bytes]]] = {
    "allow": (200, YES),
    "refuse": (200, b'{"allowed": false, "patterns": ["a name", "an address"]}'),
    "refuse-silently": (200, b'{"allowed": false, "patterns": 7}'),
    "garbage": (200, b"<html>yes</html>"),
    "large": (200, YES + b" " * 100_000),
    "broken": (500, YES),
    "moved": (302, YES),
}
SLOW: Final = "slow"
"""Answers once the test has ended."""


class GuardrailServer:
    """A running guardrail, and the requests that it received."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.questions: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.ended = threading.Event()


@contextmanager
def run_guardrail_server() -> Generator[GuardrailServer]:
    """Run a guardrail until the end of the block."""

    class Judge(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            guard.questions.append(json.loads(body))
            guard.headers.append({name.lower(): value for name, value in self.headers.items()})
            kind = self.path.rpartition("/")[2]
            if kind == SLOW:
                guard.ended.wait()
            status, answer = ANSWERS.get(kind, (200, YES))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/judge/allow")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Judge) as server:
        server.daemon_threads = True
        guard = GuardrailServer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield guard
        finally:
            guard.ended.set()
            server.shutdown()
            thread.join()
