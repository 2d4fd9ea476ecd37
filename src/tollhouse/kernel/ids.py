"""Identifiers and random material, injected.

Ids are either UUIDs (control plane) or `<prefix>-<unix seconds>-<random>` (generations), which
sort by time in a list and tell a reader of a log what they name.
"""

import secrets
import uuid
from typing import Protocol

_GENERATION_RANDOM_BYTES = 10
_IDS_PER_BLOCK = 256
_KEY_RANDOM_BYTES = 32


class IdSource(Protocol):
    """Where new identifiers and key material come from."""

    def uuid(self) -> str:
        """Return a new UUID in its canonical text form."""
        ...

    def generation(self, unix_seconds: int) -> str:
        """Return a new generation id, `gen-<unix seconds>-<20 hex digits>`."""
        ...

    def key_material(self) -> str:
        """Return at least 256 bits of URL-safe randomness for an API key."""
        ...


class RandomIds:
    """Identifiers from the operating system's random source.

    Generation ids are drawn from a block of randomness: asking the system for each costs more than
    everything else about an id. Key material never is.
    """

    def __init__(self) -> None:
        self._block = ""
        self._used = 0

    def uuid(self) -> str:
        """Return a new UUID."""
        return str(uuid.uuid4())

    def generation(self, unix_seconds: int) -> str:
        """Return a new generation id, `gen-<unix seconds>-<20 hex digits>`."""
        if self._used == len(self._block):
            self._block = secrets.token_hex(_GENERATION_RANDOM_BYTES * _IDS_PER_BLOCK)
            self._used = 0
        start, self._used = self._used, self._used + 2 * _GENERATION_RANDOM_BYTES
        return f"gen-{unix_seconds}-{self._block[start : self._used]}"

    def key_material(self) -> str:
        """Return 256 bits of URL-safe randomness for an API key."""
        return secrets.token_urlsafe(_KEY_RANDOM_BYTES)
