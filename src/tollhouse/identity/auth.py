"""Authentication: from the text of a key to a subject, in memory on the hot path.

    authenticate(text) -> Subject          a dict lookup once the key is known
    forget(hash)                           a revocation: effective before it is answered, also for
                                           the interns' keys that the key answers for
    forget_all()                           the same for a policy

Keys are looked up by the SHA-256 of their text, so the time of a lookup tells nothing about a
stored key's text. It is the key's own hash, too, unless its text has changed since. Unknown keys
are not remembered: they would let a stranger fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.identity import repository
from tollhouse.identity.keys import PREFIXES, hash_key
from tollhouse.identity.policy import answered_for, subject_of, usable
from tollhouse.kernel.errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tollhouse.identity.types import AccessPolicy, ApiKey, Subject
    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.database import Database

INVALID_KEY = "Invalid API key."
_LONGEST_KEY = 512
_MOST_CACHED = 100_000


class _Known:
    __slots__ = ("key", "read_at", "subject")

    def __init__(self, key: ApiKey, policies: tuple[AccessPolicy, ...], read_at: float) -> None:
        self.key = key
        self.read_at = read_at
        self.subject = subject_of(key, policies)

    @property
    def names(self) -> Iterator[str]:
        """The keys with which it is forgotten, beside what it is remembered under."""
        if self.key.hash != self.key.secret_hash:
            yield self.key.hash
        if self.key.payer_hash is not None:
            yield self.key.payer_hash


class Authenticator:
    """Turns key texts into subjects and remembers them."""

    def __init__(self, database: Database, clock: Clock, max_age_seconds: float | None) -> None:
        """Set up an empty cache.

        Args:
            database: Where keys are stored.
            clock: The time.
            max_age_seconds: How long an entry may serve before it is read again, for
                installations where another process may revoke; None where this one is alone.
        """
        self._database = database
        self._clock = clock
        self._max_age = max_age_seconds
        self._known: dict[str, _Known] = {}
        """By the hashes of texts."""
        self._renamed: dict[str, set[str]] = {}
        """Keys to what is remembered of them, or of those that they answer for, under other
        hashes than theirs."""
        self._generation = 0

    async def authenticate(self, text: str) -> Subject:
        """Return the subject of a key.

        Raises:
            Unauthenticated: There is no such key, or it is disabled, expired or deleted, or the
                key is that answers for it.
        """
        if not text.startswith(PREFIXES) or len(text) > _LONGEST_KEY:
            raise Unauthenticated(INVALID_KEY)
        secret_hash = hash_key(text)
        known = self._known.get(secret_hash)
        if known is None or self._stale(known):
            known = await self._read(secret_hash)
        if known is None or not usable(known.key, self._clock.now()):
            raise Unauthenticated(INVALID_KEY)
        return known.subject

    @property
    def remembered(self) -> int:
        """How many entries there are, those that lead to others included."""
        return len(self._known) + len(self._renamed)

    def forget(self, key_hash: str) -> None:
        """Drop what is remembered of a key; a read that is under way is not remembered either."""
        self._generation += 1
        self._drop(key_hash)
        for secret_hash in tuple(self._renamed.get(key_hash, ())):
            self._drop(secret_hash)

    def forget_all(self) -> None:
        """Drop everything that is remembered: a policy changed, which may hold for many keys."""
        self._generation += 1
        self._clear()

    def _stale(self, known: _Known) -> bool:
        age = self._clock.monotonic() - known.read_at
        return self._max_age is not None and age > self._max_age

    async def _read(self, secret_hash: str) -> _Known | None:
        generation, read_at = self._generation, self._clock.monotonic()
        async with self._database.reading() as read:
            key = await repository.key_with_text(read, secret_hash)
            if key is None:
                self._drop(secret_hash)
                return None
            policies = await repository.policies_for(read, key)
            if key.payer_hash is not None:
                payer = await repository.get_key(read, key.payer_hash)
                key = answered_for(key, payer)
        known = _Known(key, policies, read_at)
        if generation == self._generation:
            self._remember(secret_hash, known)
        return known

    def _remember(self, secret_hash: str, known: _Known) -> None:
        if len(self._known) >= _MOST_CACHED:
            self._clear()
        self._drop(secret_hash)
        self._known[secret_hash] = known
        for name in known.names:
            self._renamed.setdefault(name, set()).add(secret_hash)

    def _drop(self, secret_hash: str) -> None:
        known = self._known.pop(secret_hash, None)
        for name in () if known is None else known.names:
            others = self._renamed[name]
            others.discard(secret_hash)
            if not others:
                del self._renamed[name]

    def _clear(self) -> None:
        self._known.clear()
        self._renamed.clear()
