"""A client's connection, without a client."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class MemoryTransport:
    """A client's connection that keeps what is written."""

    peer: str = "192.0.2.1"
    unsent: int = 0
    """Bytes that the client has not taken."""
    written: bytearray = field(default_factory=bytearray)
    writes: int = 0
    ended: bool = False
    closed: bool = False
    aborted: bool = False
    paused: bool = False

    def write(self, data: bytes) -> None:
        self.written += data
        self.writes += 1

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str) -> Any:
        return (self.peer, 4711) if name == "peername" else None

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
