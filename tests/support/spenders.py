"""Clients that spend one budget through several processes at the same time, and a count of it.

    python -m tests.support.spenders --servers 4 --rounds 20 --seed 7 --database postgresql
    python -m tests.support.spenders --workers 4 --database sqlite --budget key --budget balance

Each round makes a budget for exactly k requests. In a `race` every client asks until it is refused;
in a `fill` they ask k-1 times, then one asks once more, and then everybody. A request costs what it
holds, so exactly k are admitted. A refusal is a *phantom* if who asked after it had come was
admitted: there was room. Ends with 1 if a round is not exact.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import aiohttp

from tests.support.deployment import BUDGETS, FREE, SETTINGS, Deployment, Payer, body_of
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.postgresql_server import postgresql_server
from tests.support.server_process import DATABASE_URL

CLIENTS: Final = 64


@dataclass
class Reply:
    """What a client got; status 0 if nothing came."""

    began: float
    ended: float = 0.0
    status: int = 0
    generation_id: str = ""
    whole: bool = False
    why: str = ""
    """The reason of a refusal."""


def having(replies: Iterable[Reply], *statuses: int) -> list[Reply]:
    return [reply for reply in replies if reply.status in statuses]


def refusals(replies: Iterable[Reply]) -> dict[str, int]:
    """Return what those say that were not admitted, and how often."""
    return Counter(f"{reply.status} {reply.why}" for reply in replies if reply.status != 200)


def admitted(replies: Iterable[Reply]) -> int:
    return len(having(replies, 200))


class Spenders:
    """Clients that keep their connections, and everything that they were answered."""

    def __init__(self, deployment: Deployment, seed: int, patience: float = 120.0) -> None:
        self.deployment, self.chance = deployment, random.Random(seed)
        self._patience = aiohttp.ClientTimeout(total=patience)
        self.replies: list[Reply] = []

    async def __aenter__(self) -> Self:
        # To one port each request goes by itself: the system chooses the worker that gets it.
        fresh = len(self.deployment.servers) == 1
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=fresh), timeout=self._patience
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def ask(
        self, key: str, body: bytes, process: int | None = None, reads: int = -1
    ) -> Reply:
        """Send a request through a process, or any; hang up after so many pieces of the reply."""
        servers, reply = self.deployment.servers, Reply(time.monotonic())
        server = self.chance.choice(servers) if process is None else servers[process % len(servers)]
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        url = f"{server.base_url}/chat/completions"
        try:
            async with self._http.post(url, data=body, headers=headers) as got:
                reply.ended, reply.status = time.monotonic(), got.status
                reply.generation_id = got.headers.get("x-generation-id", "")
                if got.status != 200:
                    reply.why = (await got.json())["error"].get("metadata", {}).get("reason", "")
                async for _ in got.content.iter_any():
                    if not (reads := reads - 1):
                        got.close()
                        break
                reply.whole = reads != 0
        except (aiohttp.ClientError, OSError):  # a TimeoutError is one
            reply.ended = reply.ended or time.monotonic()
        self.replies.append(reply)
        return reply

    async def times(self, count: int, payer: Payer) -> list[Reply]:
        """Send so many requests, each client the next one when it has its answer."""
        left, body = iter(range(count)), body_of(payer.model)

        async def client() -> list[Reply]:
            return [await self.ask(payer.key, body) for _ in left]

        return await _together(client, min(count, CLIENTS))

    async def race(self, payer: Payer) -> list[Reply]:
        body = body_of(payer.model)

        async def client() -> list[Reply]:
            replies = [await self.ask(payer.key, body)]
            while replies[-1].status == 200 and len(replies) <= payer.k:
                replies.append(await self.ask(payer.key, body))
            return replies

        return await _together(client, CLIENTS)

    async def fill(self, payer: Payer) -> list[Reply]:
        counts = (payer.k - 1, 1, CLIENTS)
        return [reply for count in counts for reply in await self.times(count, payer)]

    async def round(self, number: int, budget: str) -> "Round":
        """Spend a new budget: in races and by filling it up, in turn."""
        k = FREE.get(budget) or self.chance.randint(1, 200)
        payer = await asyncio.to_thread(self.deployment.payer, budget, k, number)
        replies = await (self.fill if number % 2 else self.race)(payer)
        return Round(f"{number:3} {budget:9} {'fill' if number % 2 else 'race'}", k, replies)


async def _together(client: Callable[[], Awaitable[list[Reply]]], clients: int) -> list[Reply]:
    found = await asyncio.gather(*(client() for _ in range(clients)))
    return [reply for replies in found for reply in replies]


@dataclass
class Round:
    """What a round came to."""

    name: str
    k: int
    replies: list[Reply] = field(repr=False)

    @property
    def problem(self) -> str:
        """What is wrong with it; nothing if it is exact."""
        got, refused = having(self.replies, 200), having(self.replies, 402, 429)
        last = max((reply.began for reply in got), default=0.0)
        phantoms = [reply for reply in refused if reply.ended < last]
        others = [reply for reply in self.replies if reply.status not in {200, 402, 429}]
        if (len(got), phantoms, others) == (self.k, [], []):
            return ""
        found = f"{len(got)} of {self.k} admitted, other answers: {refusals(others)}"
        soon = f", refused too soon: {refusals(phantoms)} after {_times(phantoms)}"
        return found + soon * bool(phantoms)


def _times(replies: Iterable[Reply]) -> str:
    took = sorted((reply.ended - reply.began) * 1e3 for reply in replies) or [0.0]
    p50, p99 = (took[int(part * len(took))] for part in (0.5, 0.99))
    return f"p50 {p50:.1f} p99 {p99:.1f} max {took[-1]:.1f} ms"


async def _run(asked: argparse.Namespace, deployment: Deployment) -> int:
    rounds, since, before = list[Round](), time.monotonic(), deployment.grants()
    async with Spenders(deployment, asked.seed) as spenders:
        for number in range(asked.rounds):
            for budget in asked.budget or BUDGETS:
                rounds.append(done := await spenders.round(number, budget))
                result = done.problem or f"{done.k} admitted, exact"
                _say(f"{done.name} {result}; {_times(having(done.replies, 200))}")
    wrong, seconds = sum(bool(each.problem) for each in rounds), time.monotonic() - since
    _say(f"admissions: {_times(having(spenders.replies, 200))}")
    _say(f"refusals: {_times(having(spenders.replies, 402, 429))}")
    for name, count in (deployment.grants() - before).items():
        _say(f"{name}: {count / seconds:.1f} a second")
    expired = deployment.holds_expired()
    _say(f"ledger verify: {deployment.differences()}, holds expired: {expired}")
    _say(f"seed {asked.seed}: {wrong} of {len(rounds)} rounds not exact, in {seconds:.0f} s")
    return bool(wrong)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the result of the program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.spenders")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="of one server, in place of servers")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--wait", type=float, default=2.0, help="limits.admission_wait_seconds")
    parser.add_argument("--budget", action="append", choices=BUDGETS)
    asked = parser.parse_args()
    with ExitStack() as stack:
        env: dict[str, str] = {}
        if asked.database == "postgresql":
            databases = PostgresqlDatabases(stack.enter_context(postgresql_server()))
            env[DATABASE_URL] = plain_url(databases.take())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limits = {**SETTINGS["limits"], "admission_wait_seconds": asked.wait}
        made = Deployment(
            *(folder, env),
            servers=asked.servers,
            workers=asked.workers,
            settings={**SETTINGS, "limits": limits},
        )
        stack.callback(made.close)
        return asyncio.run(_run(asked, made))


if __name__ == "__main__":
    sys.exit(main())
