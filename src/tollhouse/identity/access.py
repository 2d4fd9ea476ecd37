"""Who calls, what they may do, and the keys that they come with.

    authenticate(text) -> Subject          a dict lookup once the key is known
    forget(hash or None)                   a revocation: effective before it is answered, also for
                                           the interns' keys that the key answers for; of all keys
                                           for None, as after a change of a policy

A key is its kind's prefix and 256 random bits. Only its SHA-256 is stored: the text has full
entropy, so a slow password hash would add cost to every request and no safety.

Keys are looked up by the SHA-256 of their text, so the time of a lookup tells nothing about a
stored key's text. It is the key's own hash, too, unless its text has changed since. Unknown keys
are not remembered: they would let a stranger fill the memory.

The gate authenticates a request and leaves the caller in its ASGI scope; `identity.callers` passes
it on to endpoints.
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from tollhouse.identity import repository
from tollhouse.identity.types import (
    ApiKey,
    Caller,
    IssuedKey,
    KeyKind,
    LocalOperator,
    Manager,
    NewKey,
    Subject,
    Switches,
    answered_for,
    subject_of,
)
from tollhouse.kernel.clock import Clock
from tollhouse.kernel.errors import Forbidden, NotOffered, TollhouseError, Unauthenticated
from tollhouse.kernel.ids import IdSource
from tollhouse.storage.database import Database, Write
from tollhouse.storage.notifications import Topic

CALLER: Final = "tollhouse.caller"
"""Where in an ASGI scope the caller is, once there is one."""
PREFIX = "sk-th-v1-"
MANAGEMENT_PREFIX = "sk-th-mgmt-v1-"
"""Of management keys; earlier ones begin as all others do, and stay in force."""
PREFIXES = (PREFIX, MANAGEMENT_PREFIX)
DAEMON_PREFIX = "th-daemon-"
"""What every token of an intern's daemon begins with."""
_DAEMON_BEARER = f"bearer {DAEMON_PREFIX}".encode()
INVALID_KEY = "Invalid API key."
_SHOWN_HEAD = 3
_SHOWN_TAIL = 3
_LONGEST_KEY = 512
_MOST_CACHED = 100_000


def set_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Leave the authenticated caller in an ASGI scope."""
    scope[CALLER] = caller


def caller_of(scope: MutableMapping[str, Any]) -> Caller:
    """Return who calls; a `KeyError` says that the route is open and nobody was authenticated."""
    return scope[CALLER]


def billed_to(scope: MutableMapping[str, Any]) -> Subject:
    """Return the subject that an inference request is billed to.

    Raises `Forbidden` for a management key, which never runs inference, and `Unauthenticated` for a
    caller without a key.
    """
    subject = key_holder(caller_of(scope))
    if subject.kind is KeyKind.MANAGEMENT:
        raise Forbidden("A management key cannot run inference; use an API key.")
    return subject


def manager(caller: Caller, refusal: type[TollhouseError] = Forbidden) -> Manager:
    """Return what a caller may manage, or raise the refusal.

    It is `Unauthenticated` for the operations whose published error list has a 401 and no 403.
    """
    if isinstance(caller, LocalOperator):
        return Manager(account_id=None, workspace_id=None, operator=True)
    if caller.kind is not KeyKind.MANAGEMENT:
        raise refusal("This operation needs a management key.")
    return Manager(
        caller.account_id,
        caller.workspace_id,
        operator=caller.operator,
        user_id=caller.creator_user_id,
        key_hash=caller.key_hash,
    )


def operator(caller: Caller) -> Manager:
    """Return the manager of the whole installation; `Forbidden` for any other caller."""
    who = manager(caller)
    if not who.operator:
        raise Forbidden("This operation needs an operator's management key.")
    return who


def key_holder(caller: Caller) -> Subject:
    """Return the subject of a caller; `Unauthenticated` where it came without a key."""
    if isinstance(caller, LocalOperator):
        raise Unauthenticated("This operation answers for the calling key; send one.")
    return caller


def check_programme(switches: Switches) -> None:
    """Refuse a workspace that may have no interns and vaults (`NotOffered`), telling it no more."""
    if not switches.intern_programme:
        raise NotOffered("Not found.")


def new_key(
    ids: IdSource, account_id: str, workspace_id: str, wanted: NewKey, now: datetime
) -> IssuedKey:
    """Return a key of a workspace that is stored nowhere yet."""
    text = new_key_text(ids, MANAGEMENT_PREFIX if wanted.kind is KeyKind.MANAGEMENT else PREFIX)
    digest = hash_key(text)
    key = ApiKey(
        hash=digest,
        kind=wanted.kind,
        operator=wanted.operator,
        account_id=account_id,
        workspace_id=workspace_id,
        creator_user_id=wanted.creator_user_id,
        intern_id=wanted.intern_id,
        name=wanted.name,
        label=mask_key(text),
        disabled=False,
        expires_at=wanted.expires_at,
        created_at=now,
        secret_hash=digest,
        payer_hash=wanted.payer_hash,
    )
    return IssuedKey(key, text)


def has_daemon_token(authorization: bytes | None) -> bool:
    """Tell whether a header `Authorization` has a token of a daemon, whether or not it is valid."""
    return (
        authorization is not None and authorization[: len(_DAEMON_BEARER)].lower() == _DAEMON_BEARER
    )


def new_key_text(ids: IdSource, prefix: str = PREFIX) -> str:
    """Return the text of a new key."""
    return prefix + ids.key_material()


def hash_key(text: str) -> str:
    """Return the 64 lower-case hex digits under which a key is stored."""
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def mask_key(text: str) -> str:
    """Return the label of a key, `sk-th-v1-abc...xyz`: enough to recognise, useless to a thief."""
    prefix = MANAGEMENT_PREFIX if text.startswith(MANAGEMENT_PREFIX) else PREFIX
    random = text.removeprefix(prefix)
    return f"{prefix}{random[:_SHOWN_HEAD]}...{random[-_SHOWN_TAIL:]}"


def usable(key: ApiKey, clock: Clock) -> bool:
    """Tell whether a stored key authenticates anybody at this instant."""
    return not key.disabled and (key.expires_at is None or clock.now() < key.expires_at)


@dataclass(frozen=True, slots=True)
class _CachedKey:
    key: ApiKey
    subject: Subject

    @property
    def names(self) -> Iterator[str]:
        """The keys with which it is forgotten, beside what it is remembered under."""
        if self.key.hash != self.key.secret_hash:
            yield self.key.hash
        if self.key.payer_hash is not None:
            yield self.key.payer_hash


@dataclass(eq=False, repr=False)
class Authenticator:
    """Turns key texts into subjects and remembers them, until it is notified of a change."""

    database: Database
    clock: Clock
    _cached: dict[str, _CachedKey] = field(default_factory=dict[str, _CachedKey])
    """By the hashes of texts."""
    _renamed: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Keys to what is remembered of them, or of those that they answer for, under other hashes."""
    _generation: int = 0

    def __post_init__(self) -> None:
        notifications = self.database.notifications
        notifications.subscribe(Topic.KEY, self.forget)
        notifications.subscribe(Topic.POLICY, lambda _: self.forget(None))

    async def authenticate(self, text: str) -> Subject:
        """Return the subject of a key.

        Raises `Unauthenticated` where there is no such key, or it is disabled, expired or deleted,
        or the key is that answers for it.
        """
        if not text.startswith(PREFIXES) or len(text) > _LONGEST_KEY:
            raise Unauthenticated(INVALID_KEY)
        secret_hash = hash_key(text)
        cached = self._cached.get(secret_hash) or await self._read(secret_hash)
        if cached is None or not usable(cached.key, self.clock):
            raise Unauthenticated(INVALID_KEY)
        return cached.subject

    def known(self, secret_hash: str) -> Subject | None:
        """Return the subject of a key that is remembered and usable; None for all others."""
        cached = self._cached.get(secret_hash)
        if cached is None or not usable(cached.key, self.clock):
            return None
        return cached.subject

    @property
    def remembered(self) -> int:
        """How many entries there are, those that lead to others included."""
        return len(self._cached) + len(self._renamed)

    def forget(self, key_hash: str | None) -> None:
        """Drop what is remembered of a key, or of all for None, as a policy may hold for many.

        A read that is under way is not remembered either.
        """
        self._generation += 1
        if key_hash is None:
            self._clear()
            return
        self._drop(key_hash)
        for secret_hash in tuple(self._renamed.get(key_hash, ())):
            self._drop(secret_hash)

    async def _read(self, secret_hash: str) -> _CachedKey | None:
        generation = self._generation
        async with self.database.reading() as read:
            key = await repository.key_with_text(read, secret_hash)
            if key is None:
                self._drop(secret_hash)
                return None
            policies = await repository.policies_for(read, key)
            if key.payer_hash is not None:
                key = answered_for(key, await repository.get_key(read, key.payer_hash))
        cached = _CachedKey(key, subject_of(key, policies))
        if generation == self._generation:
            self._remember(secret_hash, cached)
        return cached

    def _remember(self, secret_hash: str, cached: _CachedKey) -> None:
        if len(self._cached) >= _MOST_CACHED:
            self._clear()
        self._drop(secret_hash)
        self._cached[secret_hash] = cached
        for name in cached.names:
            self._renamed.setdefault(name, set()).add(secret_hash)

    def _drop(self, secret_hash: str) -> None:
        cached = self._cached.pop(secret_hash, None)
        for name in () if cached is None else cached.names:
            others = self._renamed[name]
            others.discard(secret_hash)
            if not others:
                del self._renamed[name]

    def _clear(self) -> None:
        self._cached.clear()
        self._renamed.clear()


@dataclass(frozen=True, slots=True)
class InternKeys:
    """Interns' own keys: each has one for its life, whose text is another one at each boot.

        issue       its first boot makes the key; each further one gives it another text
        withdraw    it runs no more: the text is forgotten, the key with its limit and policy stays
        delete      it is gone

    The text goes to who serves the intern, and is stored nowhere. Whether a key is disabled is for
    its managers to say, and stays as they said. Every change is effective before the answer.
    """

    clock: Clock
    ids: IdSource

    async def issue(
        self, write: Write, account_id: str, workspace_id: str, wanted: NewKey
    ) -> IssuedKey:
        """Give an intern its key with a new text; one that it had before opens nothing any more.

        The key is in the intern's workspace from now on. What is `wanted` of it holds for its first
        key; a later call changes name and payer alone.
        """
        now = self.clock.now()
        known = await repository.key_of_intern(write, account_id, str(wanted.intern_id))
        if known is None:
            issued = new_key(self.ids, account_id, workspace_id, wanted, now)
            await repository.add(write, issued.key)
            return issued
        text = new_key_text(self.ids)
        renewed = replace(
            known,
            workspace_id=workspace_id,
            name=wanted.name,
            label=mask_key(text),
            secret_hash=hash_key(text),
            payer_hash=wanted.payer_hash,
            updated_at=now,
        )
        await repository.save(write, renewed)
        write.notify(Topic.KEY, known.hash)
        return IssuedKey(renewed, text)

    async def withdraw(self, write: Write, intern_id: str) -> None:
        """Let an intern's key open nothing until it is issued again."""
        for key_hash in await repository.take_texts(write, intern_id, self.clock.now()):
            write.notify(Topic.KEY, key_hash)

    async def delete(self, write: Write, intern_id: str) -> None:
        """Revoke an intern's key for ever."""
        now = self.clock.now()
        for key_hash in await repository.delete_keys_of_intern(write, intern_id, now):
            write.notify(Topic.KEY, key_hash)
