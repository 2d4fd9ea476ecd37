"""The scripts that test servers play: bytes, pauses and connection ends."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in seconds before the next bytes."""

    seconds: float


class End(Enum):
    """How a connection ends that is not kept for the next request."""

    EOF = "close it in order; on TLS with close_notify"
    CUT = "close it, on TLS without close_notify"
    RST = "reset it"
    HANG = "leave it open and say nothing more"


Step = bytes | Pause | End
Script = tuple[Step, ...]
"""The steps in order; consecutive bytes are sent in one write."""
