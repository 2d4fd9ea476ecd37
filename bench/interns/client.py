"""A client that creates, suspends and resumes interns over HTTP, polling every few milliseconds."""

from __future__ import annotations

import os
import subprocess
from http.client import HTTPConnection
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.gateway import PROGRAM
from bench.interns.figures import Boot, Suspension, boot
from bench.processes import BenchError
from tollhouse.kernel.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from bench.gateway import Gateway

LOOK_SECONDS: Final = 0.005
_PATIENCE_SECONDS: Final = 60.0
_IDLE_SECONDS: Final = 1.0
"""A connection that nothing was sent on for so long may be closed by the server just then."""
_SETTLED: Final = frozenset({"running", "failed"})
_DONE: Final = frozenset({200, 201, 202})
_LATE: Final = 408
"""A suspension goes on that takes longer than a request may."""
_object = msgspec.json.Decoder(dict[str, Any])


class InternClient:
    """Speaks with one server."""

    def __init__(self, gateway: Gateway) -> None:
        self._key = gateway.keys.api_key
        self._url = f"http://127.0.0.1:{gateway.port}/v1"
        self._connection = HTTPConnection("127.0.0.1", gateway.port, timeout=_PATIENCE_SECONDS)
        self._used = monotonic()
        self._clock = SystemClock()

    def make(self, name: str) -> tuple[str, Boot]:
        """Make an intern that runs at once; return its id, and how long that took.

        Raises:
            BenchError: It is refused, or fails.
        """
        self._renew()
        began = self._clock.now()
        said = self._expect("POST", "/interns", {"name": name, "provision": True})
        return said["id"], self._booted(said["id"], began)

    def resume(self, intern: str) -> Boot:
        """Have a suspended intern run again.

        Raises:
            BenchError: It is refused, or fails.
        """
        self._renew()
        began = self._clock.now()
        self._expect("POST", f"/interns/{intern}/provision")
        return self._booted(intern, began)

    def suspend(self, intern: str) -> Suspension:
        """Suspend an intern, and wait until its files are safe.

        Raises:
            BenchError: It is refused, or fails.
        """
        self._renew()
        began = perf_counter()
        status, said = self._ask("POST", f"/interns/{intern}/suspend", None)
        if status == _LATE:
            self._until(intern, {"stopped"})
        elif status not in _DONE:
            raise _refused(status, said)
        return Suspension(perf_counter() - began)

    def run(self, name: str, script: str) -> str:
        """Have a shell of an intern run a script; return what it printed.

        Raises:
            BenchError: It fails.
        """
        command = [str(PROGRAM), "intern", "attach", name, "--base-url", self._url]
        done = subprocess.run(
            command,
            env={**os.environ, "TOLLHOUSE_API_KEY": self._key},
            input=script.encode(),
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()
            raise BenchError(f"a script in an intern failed: {words}")
        return done.stdout.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _booted(self, intern: str, began: datetime) -> Boot:
        self._until(intern, {"running"})
        ended = self._clock.now()
        lines = self._expect("GET", f"/interns/{intern}/logs")["data"]
        try:
            return boot(began, ended, [(line["at"], line["text"]) for line in lines])
        except ValueError as error:
            raise BenchError(str(error)) from None

    def _until(self, intern: str, wanted: Collection[str]) -> None:
        deadline = monotonic() + _PATIENCE_SECONDS
        while True:
            found = self._expect("GET", f"/interns/{intern}")
            if found["status"] in wanted:
                return
            if found["status"] in _SETTLED or monotonic() > deadline:
                why = found["last_failure_message"] or "nobody knows why"
                raise BenchError(f"an intern is {found['status']}: {why}")
            sleep(LOOK_SECONDS)

    def _expect(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        status, said = self._ask(method, path, body)
        if status not in _DONE:
            raise _refused(status, said)
        return _object.decode(said)

    def _ask(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {self._key}"}
        sent = None
        if body is not None:
            headers["content-type"] = "application/json"
            sent = msgspec.json.encode(body)
        if monotonic() - self._used > _IDLE_SECONDS:
            self._renew()
        self._connection.request(method, f"/v1{path}", sent, headers)
        response = self._connection.getresponse()
        said = response.read()
        self._used = monotonic()
        return response.status, said

    def _renew(self) -> None:
        """Connect anew, before anything is timed."""
        self._connection.close()
        self._connection.connect()
        self._used = monotonic()


def _refused(status: int, said: bytes) -> BenchError:
    text = said[:500].decode("utf-8", "replace")
    return BenchError(f"a request for an intern was answered with {status}: {text}")
