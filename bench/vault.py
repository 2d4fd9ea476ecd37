"""The cost of secrets: resolving names, opening a value, and lists.

    python -m bench.vault [--secrets 300] [--listed 10000] [--rounds 5]

    cold      the three vaults' rows are read and resolved, one value is opened
    cached    what was resolved is remembered; one value is opened
    page      a page of 100 out of a long list, at its beginning and at its end

On the shipped code with an SQLite file; CPU time of the process with all of its threads.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from bench.statistic import spread
from tollhouse.audit.service import AuditService
from tollhouse.identity.auth import Authenticator
from tollhouse.identity.policy import subject_of
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.ids import RandomIds
from tollhouse.kernel.pages import Window
from tollhouse.kernel.secret import Secret
from tollhouse.storage.database import Database, open_database
from tollhouse.storage.migrator import upgrade
from tollhouse.storage.urls import sqlite_url
from tollhouse.testing.builders import OPERATOR, add_tenant
from tollhouse.vault import repository
from tollhouse.vault.context import Context
from tollhouse.vault.envelope import fingerprint, new_key, seal
from tollhouse.vault.keyring import Keyring
from tollhouse.vault.keys.symmetric import SymmetricKeys
from tollhouse.vault.resolutions import Resolutions
from tollhouse.vault.service import VaultService
from tollhouse.vault.types import NewSecret, StoredSecret, VaultKind, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tollhouse.identity.types import Subject

HOST: Final = "api.example.com"
COLD_AIM_US: Final = 200.0
CACHED_AIM_US: Final = 10.0


class VaultBench:
    """An intern that receives from its own vault and from its workspace's."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock, self.ids = SystemClock(), RandomIds()
        identity = IdentityService(self.clock, self.ids, Authenticator(database, self.clock, None))
        self.identity = identity
        self.context = Context(
            database=database,
            identity=identity,
            audit=AuditService(self.clock),
            keyring=Keyring(SymmetricKeys([new_key()])),
            clock=self.clock,
            ids=self.ids,
            changed=lambda _: None,
        )
        self.service = VaultService(self.context)
        self.resolutions = Resolutions(database, self.service, self.clock, max_age_seconds=None)
        self.caller: Subject
        self.intern_id = self.ids.uuid()

    async def fill(self, secrets: int, listed: int) -> None:
        """Store the intern's secrets, half in its own vault, and a long list in another one."""
        tenant = await add_tenant(self.database, clock=self.clock, ids=self.ids)
        self.caller = subject_of(tenant.key)
        async with self.database.writing() as write:
            await self.identity.change_account(
                write, OPERATOR, tenant.account.id, intern_programme=True
            )
        account, workspace = tenant.account.id, tenant.workspace.id
        own = await self.service.new_vault(account, workspace, VaultKind.INTERN)
        async with self.database.writing() as write:
            await self.service.add_subject(write, self.intern_id, own, None)
        await self.service.put(self.caller, None, "first", NewSecret(Secret("x"), (HOST,)))
        async with self.database.reading() as read:
            shared = await repository.workspace_vault(read, workspace)
            assert shared is not None
        half = secrets // 2
        for vault, names in (
            (own, [f"own_{at}" for at in range(half)]),
            (shared, [f"shared_{at}" for at in range(secrets - half - 1)]),
        ):
            key = await self.context.keyring.key(vault)
            await self._store(vault.id, key, names)
        self.long = await self.service.new_vault(account, workspace, VaultKind.INTERN)
        self.long_intern = self.ids.uuid()
        async with self.database.writing() as write:
            await self.service.add_subject(write, self.long_intern, self.long, None)
        key = await self.context.keyring.key(self.long)
        await self._store(self.long.id, key, [f"name_{at:05}" for at in range(listed)])

    async def _store(self, vault_id: str, key: bytes, names: list[str]) -> None:
        now = self.clock.now()
        value = Secret("sk-" + "x" * 45)
        async with self.database.writing() as write:
            for name in names:
                sealed = seal(key, value, vault_id, name, 1)
                told = fingerprint(key, value)
                stored = StoredSecret(vault_id, name, 1, (HOST,), told, now, now, sealed)
                await repository.put(write, stored)

    async def cold(self) -> None:
        """Resolve with an empty cache, and open a value."""
        self.resolutions.forget("")
        await self.cached()

    async def cached(self) -> None:
        """Open a value from the cache."""
        resolved = await self.resolutions.of(self.intern_id)
        if self.service.verdict(resolved, "own_7", HOST) is Verdict.RELEASED:
            await self.service.open(resolved["own_7"].secret)

    async def page(self, offset: int) -> None:
        """Read a page of the long list."""
        async with self.database.reading() as read:
            window = Window(offset, 100)
            await self.service.secrets(read, self.caller, self.long_intern, window)


async def microseconds(work: Callable[[], Awaitable[None]], times: int) -> float:
    """Return the CPU time of one call in microseconds."""
    await work()
    began = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - began) / times * 1e6


async def measure(folder: Path, secrets: int, listed: int, rounds: int) -> None:
    """Print the cost of each operation."""
    url = sqlite_url(folder / "bench.db")
    await asyncio.to_thread(upgrade, url)
    database = open_database(url)
    try:
        bench = VaultBench(database)
        await bench.fill(secrets, listed)
        cases: dict[str, tuple[Callable[[], Awaitable[None]], int, float | None]] = {
            f"cold, {secrets} secrets": (bench.cold, 50, COLD_AIM_US),
            f"cached, {secrets} secrets": (bench.cached, 5_000, CACHED_AIM_US),
            f"first page of {listed}": (lambda: bench.page(0), 50, None),
            f"last page of {listed}": (lambda: bench.page(listed - 100), 50, None),
        }
        for name, (work, times, aim) in cases.items():
            found = spread([await microseconds(work, times) for _ in range(rounds)])
            told = "" if aim is None else f"  aim {aim:.0f}"
            print(
                f"{name:26} {found.median:9.1f} us  ({found.least:.1f} to {found.most:.1f}){told}"
            )
    finally:
        await database.close()


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(prog="python -m bench.vault", description=__doc__)
    parser.add_argument("--secrets", type=int, default=300)
    parser.add_argument("--listed", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(measure(Path(folder), options.secrets, options.listed, options.rounds))


if __name__ == "__main__":
    main()
