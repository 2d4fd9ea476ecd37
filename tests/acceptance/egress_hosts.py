"""HTTPS hosts on this machine behind the egress proxy, and the requests that they received."""

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

BOUND = "api.bound.example"
OTHER = "www.other.example"
_STREAMED_SECONDS = 60.0


class EgressHosts:
    """A server that answers for several names."""

    def __init__(self, server: ThreadingHTTPServer, authority: Path) -> None:
        self.port: int = server.server_address[1]
        self.authority = authority
        self.requests: list[dict[str, Any]] = []
        """The requests in order: host, path, authorization."""
        self.stopping = threading.Event()

    def url(self, host: str, path: str = "/echo") -> str:
        return f"https://{host}:{self.port}{path}"

    def config(self, *more: str) -> str:
        """Return settings with which a server finds and trusts the hosts."""
        names = ", ".join(f"{name}=127.0.0.1" for name in (BOUND, OTHER))
        lines = [
            *("outbound:", "  allow_networks: [127.0.0.0/8]"),
            *(f"  extra_ca_file: {self.authority}", f"  addresses: [{names}]"),
            *("egress:", f"  allow_ports: ['{BOUND}:{self.port}']", *more),
        ]
        return "\n".join(lines) + "\n"

    def authorizations(self, host: str) -> list[str | None]:
        """Return the Authorization headers of the requests to a host."""
        return [each["authorization"] for each in self.requests if each["host"] == host]


@contextmanager
def serve_hosts(folder: Path, names: Sequence[str] = (BOUND, OTHER)) -> Generator[EgressHosts]:
    """Serve a folder, `/echo` with the request's body, and the endless `/stream`."""
    authority = trustme.CA()
    file = folder / "hosts-ca.pem"
    authority.cert_pem.write_to_path(str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    hosts = EgressHosts(server, file)
    server.hosts = hosts  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hosts
    finally:
        hosts.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _hosts(self) -> EgressHosts:
        return self.server.hosts  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        seen = {
            "host": str(self.headers["host"]).partition(":")[0],
            "path": self.path,
            "authorization": self.headers["authorization"],
            "key": self.headers["x-key"],
        }
        self._hosts.requests.append(seen)
        if self.path == "/stream":
            self._stream()
        elif self.path.startswith("/echo"):
            self._say(json.dumps(seen).encode())
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        ends = time.monotonic() + _STREAMED_SECONDS
        while time.monotonic() < ends and not self._hosts.stopping.wait(0.05):
            try:
                self.wfile.write(b"data: still here\n\n")
                self.wfile.flush()
            except OSError:
                break
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


def make_repository(folder: Path) -> None:
    """Make `repo.git` in a folder, to be cloned from a server of plain files."""
    work = folder / "work"
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")

    def git(*words: str) -> None:
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main", str(work))
    (work / "README").write_text("hello\n")
    git("-C", str(work), "add", "README")
    git("-C", str(work), "commit", "--quiet", "-m", "Begin")
    git("clone", "--quiet", "--bare", str(work), str(folder / "repo.git"))
    git("-C", str(folder / "repo.git"), "update-server-info")
