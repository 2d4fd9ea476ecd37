"""A client of batches: one connection for each call; the bytes of results are discarded."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.processes import BenchError

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from pathlib import Path

    from bench.gateway import Gateway

_PATH: Final = "/v1/batches"
_PIECE: Final = 262_144
_ANSWERED: Final = b'"status_code":200'
_SECONDS: Final = 300.0
_object = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Submitted:
    """A batch that was accepted."""

    id: str
    began: float
    """When its first byte was sent, by the monotonic clock; then when the 202 had arrived."""
    accepted: float

    @property
    def seconds(self) -> float:
        """Seconds from the first byte to the 202."""
        return self.accepted - self.began


@dataclass(frozen=True, slots=True)
class ReadResults:
    """Results that were read to the end."""

    size: int
    answered: int
    """Items with a response."""
    seconds: float


class BatchClient:
    """A client of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._port = gateway.port
        self._headers = {"authorization": f"Bearer {gateway.keys.api_key}"}

    def submit(self, body: Path) -> Submitted:
        """Send a batch.

        Args:
            body: The file with its body.

        Raises:
            BenchError: It is refused.
        """
        with closing(self._connect()) as connection, body.open("rb") as file:
            began = monotonic()
            connection.putrequest("POST", _PATH)
            for name, value in self._headers.items():
                connection.putheader(name, value)
            connection.putheader("content-type", "application/json")
            connection.putheader("content-length", str(body.stat().st_size))
            connection.endheaders()
            connection.sock.sendfile(file)
            response = connection.getresponse()
            accepted = monotonic()
            said = _object.decode(_expect(response, 202).read())
        return Submitted(said["id"], began, accepted)

    def read(self, batch_id: str) -> ReadResults:
        """Read a batch that has ended, with its results.

        Raises:
            BenchError: It has none.
        """
        with closing(self._connect()) as connection:
            began = monotonic()
            connection.request("GET", f"{_PATH}/{batch_id}", headers=self._headers)
            response = _expect(connection.getresponse(), 200)
            size = answered = 0
            end = b""
            while piece := response.read(_PIECE):
                size += len(piece)
                # Those at the seam were counted before, unless they lie across it.
                seam = end + piece[: len(_ANSWERED) - 1]
                answered += piece.count(_ANSWERED) + seam.count(_ANSWERED)
                end = piece[-len(_ANSWERED) + 1 :]
            seconds = monotonic() - began
        if not end.endswith(b"]}"):
            raise BenchError("the results are cut off")
        return ReadResults(size, answered, seconds)

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch."""
        self._say("POST", f"{_PATH}/{batch_id}/cancel")

    def delete(self, batch_id: str) -> None:
        """Remove a batch that has ended, with its files."""
        self._say("DELETE", f"{_PATH}/{batch_id}")

    def _say(self, method: str, path: str) -> None:
        with closing(self._connect()) as connection:
            connection.request(method, path, headers=self._headers)
            _expect(connection.getresponse(), 200).read()

    def _connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)


def items_received(port: int) -> tuple[int, float]:
    """Return how many items came to the upstream since this was last called.

    Returns:
        How many, and when the first did, by the machine's monotonic clock.
    """
    with closing(HTTPConnection("127.0.0.1", port, timeout=_SECONDS)) as connection:
        connection.request("GET", "/asked")
        said = _object.decode(_expect(connection.getresponse(), 200).read())
    return int(said["count"]), int(said["first_ns"]) / 1e9


def _expect(response: HTTPResponse, status: int) -> HTTPResponse:
    if response.status != status:
        text = response.read(500).decode("utf-8", "replace")
        message = f"a batch was answered with {response.status}: {text}"
        raise BenchError(message)
    return response
