"""One bus of changes: who remembers something of the database is told when it is stale.

    write.notify(Topic.KEY, key_hash)                            in the transaction that changes it
    database.notifications.subscribe(Topic.KEY, heard)           by whoever remembers it

After the commit this process is told at once. Others are told

    on PostgreSQL   by NOTIFY in the same transaction; each process has a connection that LISTENs
    on SQLite       by a datagram to the socket of each, `<data>/notify/<name>`; only where a
                    process was told that it is one of several

A notification may be lost or come twice. So the transaction raises the topic's version, too, in a
row that is read once a second: where it rose and nothing was heard of that, everything of the topic
is stale. Topics in `HINTS` have no version: what they tell is found out in another way as well.

Source: https://www.postgresql.org/docs/current/sql-notify.html, unix(7)
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import defaultdict
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
import structlog

from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy.engine import CursorResult

    Execute = Callable[[sa.Executable], Awaitable[CursorResult[Any]]]
    Subscriber = Callable[[str | None], None]
    """Called with what has changed, or None: anything of the topic. It must not raise."""


class Topic(StrEnum):
    """What a change is about, and what its refs are. They are ids: never a secret."""

    ACCOUNT = "account"
    """An account's money, its limits or those of its keys, how it pays. An account's id."""
    ACCOUNT_HINT = "account_hint"
    """The same, where it has as much to spend as was known."""
    KEY = "key"
    """An API key is another one, or none. Its hash."""
    POLICY = "policy"
    """An access policy. The id or hash of whose it is."""
    OWN_KEYS = "own_keys"
    """Own keys of providers. An account's id."""
    VAULT = "vault"
    """A vault's secrets. Its id."""
    LEASE = "lease"
    """What processes were granted of budgets."""
    BATCH = "batch"
    """Whoever runs a batch is to look at it. Its id."""
    INTERN = "intern"
    """Whoever looks after an intern has something to do. Its id."""


HINTS: Final = frozenset({Topic.ACCOUNT_HINT, Topic.LEASE, Topic.BATCH, Topic.INTERN})
POLL_SECONDS: Final = 0.9
"""So that a lost notification costs a second, with the time that the answer takes."""
AWAY_SECONDS: Final = 10.0
"""How long what is remembered counts while the database cannot be asked: it restarts, say."""
_ANSWER_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.2
HELD_MS: Final = 5_000
"""How long a process that was stopped just before its commit keeps others from theirs."""
_LONGEST: Final = 7_900
"""PostgreSQL takes 7,999 bytes."""
_CHANNEL: Final = "tollhouse"
VERSIONS: Final = "SELECT name, version FROM topics"
RAISE: Final = (
    "INSERT INTO topics (name, version) VALUES (:topic, 1) "
    "ON CONFLICT (name) DO UPDATE SET version = topics.version + 1 RETURNING version"
)
_NOTIFY: Final = (
    f"pg_notify('{_CHANNEL}', version || ' ' || :rest), "
    "set_config('idle_in_transaction_session_timeout', :held, true)"
)
_RAISE_AND_NOTIFY: Final = f"WITH risen AS ({RAISE}) SELECT version, {_NOTIFY} FROM risen"  # noqa: S608 - constants
_ONLY_NOTIFY: Final = f"SELECT version, {_NOTIFY} FROM (SELECT 0 AS version) AS none"  # noqa: S608 - constants
_log = structlog.get_logger(__name__)


class Notifications:
    """The bus of one process on one database."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self._on_postgresql = url.get_backend_name() == "postgresql"
        self._subscribers: defaultdict[str, list[Subscriber]] = defaultdict(list)
        self._name = ""
        self._datagrams: _Datagrams | None = None
        self._versions: Callable[[], Awaitable[Mapping[str, int]]]
        self._hearing: asyncio.Task[None] | None = None
        self._is_deaf = False
        self._answered = 0.0
        """When the database did last."""
        self._heard: defaultdict[str, int] = defaultdict(int)
        """The version of each topic up to which all was heard."""
        self._early: defaultdict[str, set[int]] = defaultdict(set)
        """Versions that were heard before one below them."""

    def subscribe(self, topic: Topic, subscriber: Subscriber) -> None:
        """Have somebody told of every change, in the order of subscribing."""
        self._subscribers[topic].append(subscriber)

    def tell(self, topic: str, ref: str | None) -> None:
        """Tell the subscribers of this process."""
        for subscriber in self._subscribers[topic]:
            try:
                subscriber(ref)
            except Exception:  # noqa: BLE001 - the others are told; the log has the reason
                _log.exception("subscriber_failed", topic=topic)

    # What the transaction does

    async def publish(
        self, execute: Execute, notices: Mapping[Topic, Collection[str]]
    ) -> Sequence[str]:
        """Do what belongs into the transaction, as its last step; return what `sent` is to send.

        Rows of topics are locked after all others, in one order, and for the commit alone.
        """
        if not self._on_postgresql and self._datagrams is None:
            return ()
        messages: list[str] = []
        for topic in sorted(notices):
            rest = json.dumps([topic, self._name, list(notices[topic])])
            if len(rest) > _LONGEST:  # it is ASCII
                rest = json.dumps([topic, self._name, [None]])
            version = 0
            if self._on_postgresql:
                text = _ONLY_NOTIFY if topic in HINTS else _RAISE_AND_NOTIFY
                named = {"rest": rest, "held": str(HELD_MS)}
                named |= {} if topic in HINTS else {"topic": topic}
                await execute(sa.text(text).bindparams(**named))
            elif topic not in HINTS:
                raised = await execute(sa.text(RAISE).bindparams(topic=topic))
                version = raised.scalar_one()
            messages.append(f"{version} {rest}")
        return messages

    def sent(self, messages: Sequence[str]) -> None:
        """Send what a transaction has published, once it is committed."""
        if self._datagrams is not None:
            for message in messages:
                self.hear(message)
                self._datagrams.send(message)

    # What comes from others

    def start(
        self, name: str, folder: Path | None, versions: Callable[[], Awaitable[Mapping[str, int]]]
    ) -> None:
        """Hear other processes under a name that nobody else has; `stop` ends it.

        On SQLite there are none without a folder, where each has its socket. `versions` reads those
        of the topics.

        Raises:
            StartError: The socket cannot be made.
        """
        if folder is not None:
            self._datagrams = _Datagrams(folder, name[-12:], self.hear)
        elif not self._on_postgresql:
            return
        self._name, self._versions = name, versions
        self._hearing = asyncio.create_task(self._hear_others())

    async def stop(self) -> None:
        """Hear others no more."""
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait([self._hearing])
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None

    def hear(self, message: str) -> None:
        """Take a notification as it was sent: a version, then topic, sender and refs as JSON."""
        try:
            version, _, rest = message.partition(" ")
            topic, sender, refs = json.loads(rest)
            is_new = self._is_new(topic, int(version))
            told = list(refs) if is_new and sender != self._name else []
        except (TypeError, ValueError):
            _log.warning("notification_not_understood")
            return
        for ref in told:
            self.tell(topic, ref)

    def _is_new(self, topic: str, version: int) -> bool:
        if not version:
            return True
        early = self._early[topic]
        if version <= self._heard[topic] or version in early:
            return False
        early.add(version)
        while self._heard[topic] + 1 in early:
            self._heard[topic] += 1
            early.discard(self._heard[topic])
        return True

    def _compare(self, before: Mapping[str, int], versions: Mapping[str, int]) -> None:
        """Tell of topics of which something was not heard; `before`: what was, when they were read.

        A version that is lower than what was heard is of a database that was put back.
        """
        self._answered = asyncio.get_running_loop().time()
        for topic, version in versions.items():
            if version > self._heard[topic] or version < before.get(topic, 0):
                self._heard[topic] = version
                self._early[topic].clear()
                self.tell(topic, None)

    async def _hear_others(self) -> None:
        loop = asyncio.get_running_loop()
        self._answered = loop.time()
        while True:
            # On PostgreSQL the second one is for as long as it takes to listen again.
            for work in (self._listen, self._poll):
                try:
                    await work()
                except Exception as error:  # noqa: BLE001 - the edge of the task
                    if not self._is_deaf:
                        _log.warning("notifications_not_heard", error=type(error).__name__)
                    self._is_deaf = True
            if loop.time() - self._answered > AWAY_SECONDS:
                for topic in Topic:
                    self.tell(topic, None)
            await asyncio.sleep(RETRY_SECONDS if self._on_postgresql else POLL_SECONDS)

    async def _poll(self) -> None:
        before = dict(self._heard)
        async with asyncio.timeout(_ANSWER_SECONDS):
            versions = await self._versions()
        self._compare(before, versions)
        self._is_deaf &= self._on_postgresql

    async def _listen(self) -> None:
        """Hear what PostgreSQL passes on, until the connection is lost."""
        if not self._on_postgresql:
            return
        # Imported here: who has an SQLite file goes without the driver.
        from tollhouse.storage import postgresql  # noqa: PLC0415

        def heard(*said: object) -> None:
            self.hear(str(said[-1]))

        async with asyncio.timeout(_ANSWER_SECONDS):
            connection = await postgresql.connect(self._url, _ANSWER_SECONDS)
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(_CHANNEL, heard)
            for topic in HINTS:
                self.tell(topic, None)
            while not lost.is_set():
                before = dict(self._heard)
                rows = await connection.fetch(VERSIONS)
                self._compare(before, {row["name"]: row["version"] for row in rows})
                self._is_deaf = False
                await wait_for_event(lost, POLL_SECONDS)
        finally:
            connection.terminate()


class _Datagrams:
    """The sockets of the processes of one data folder, ours among them."""

    def __init__(self, folder: Path, name: str, heard: Callable[[str], None]) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path, self._heard = folder / name, heard
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind(str(self._path))
        except OSError as error:
            self._socket.close()
            raise StartError(
                f"the socket {self._path} cannot be made ({error.strerror or error}): "
                "choose a data folder with a shorter path, on a local disk"
            ) from None
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def send(self, message: str) -> None:
        """Send it to every other; one whose queue is full finds out by itself."""
        for each in self._path.parent.iterdir():
            if each == self._path:
                continue
            try:
                self._socket.sendto(message.encode(), str(each))
            except ConnectionRefusedError:  # its process is gone
                each.unlink(missing_ok=True)
            except OSError:
                pass

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self._heard(self._socket.recv(_LONGEST * 2).decode())

    def close(self) -> None:
        """Remove ours."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)
