"""What a scripted server writes: bytes, pauses and ways to end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds before the next bytes."""

    seconds: float


class End(Enum):
    """What becomes of the connection, where it is not kept for the next request."""

    EOF = "close it in order; on TLS with close_notify"
    CUT = "close it, on TLS without close_notify"
    RST = "reset it"
    HANG = "leave it open and say nothing more"


Step = bytes | Pause | End
Script = tuple[Step, ...]
"""What is done, in order. Neighbouring bytes leave in one write."""
