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
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import httpx2

from tests.support.fake_s3 import blobs_at, s3_beside
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.postgresql_server import postgresql_server
from tests.support.server_process import DATABASE_URL, ServerProcess, start_server

CLIENTS: Final = 64
COST: Final = 0.01
"""Credits that a request holds, and costs."""
TOKENS: Final = 4
PRICE: Final = {"prompt": "0", "completion": f"{COST / TOKENS}"}
FREE: Final = {"minute": 20, "day": 50}
"""What an account that has purchased nothing may ask of free models."""
BUDGETS: Final = ("key", "balance", *FREE)
"""Those that there are; `workspace` joins them once budgets of workspaces are enforced."""
WORKERS: Final = 0
"""How many workers tests have `tollhouse serve` start; 0 while it does not know the option."""


def model(name: str, behaviour: str, pricing: object = PRICE, **more: object) -> dict[str, Any]:
    """Return a model of the catalogue, of the provider `simulated` unless `behaviour` has one."""
    provider, _, kind = behaviour.rpartition("/")
    endpoint = {"provider": provider or "simulated", "model": kind, "pricing": pricing}
    return {"id": f"acme/{name}", "context_length": 8192, "endpoints": [endpoint], **more}


SETTINGS: Final[Mapping[str, Any]] = {
    "accounting": {"initial_grant": 0},
    "server": {"max_requests_per_address_per_minute": 10**8},
    "limits": {"in_flight_fraction": "1", "settlement_seconds": 0},
    "providers": [{"slug": "simulated", "kind": "simulated"}],
    "models": [
        *(model("exact", "echo"), model("slow", "slow"), model("minute:free", "echo", "free")),
        model("day:free", "echo", "free", requests_per_minute=10**5),
    ],
}


def body_of(name: str, tokens: int = TOKENS, *, stream: bool = False) -> bytes:
    """Return a request that costs what it holds: the model writes as much as it may."""
    said = [{"role": "user", "content": "word " * (2 * tokens)}]
    body = {"model": f"acme/{name}", "max_tokens": tokens, "messages": said, "stream": stream}
    return json.dumps(body).encode()


@dataclass
class Reply:
    """What a client got; status 0 if nothing came."""

    process: int
    began: float
    ended: float = 0.0
    status: int = 0
    generation_id: str = ""
    whole: bool = False
    body: bytes = b""


@dataclass(frozen=True)
class Payer:
    """A key, and the model that uses up its budget."""

    key: str
    key_hash: str
    account: str
    model: str
    k: int


class Deployment:
    """Several processes on one database: servers with folders of their own, or workers of one."""

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        *,
        servers: int = 4,
        workers: int = 0,
        settings: Mapping[str, Any] = SETTINGS,
    ) -> None:
        self.folder, self.env, self._ending = folder, env, ExitStack()
        blobs = {} if workers else {"blobs": blobs_at(self._ending.enter_context(s3_beside()))}
        self._config = json.dumps({**settings, **blobs})
        self._args = ("--workers", str(workers)) if workers else ()
        self.servers: list[ServerProcess] = []
        self._ending.push(lambda *_: self._stop())
        for number in range(1 if workers else servers):
            self.start(number)
        self.management_key = self.servers[0].management_key

    def start(self, number: int) -> None:
        """Start a server, on the data folder of the last one with this number."""
        home = self.folder / f"server-{number}"
        home.mkdir(parents=True, exist_ok=True)
        started = start_server(home, config=self._config, env=self.env, args=self._args)
        self.servers[number : number + 1] = [started]

    def manage(self, method: str, path: str, process: int = 0, **content: Any) -> Any:
        """Send a request with the operator's key through a process; assert that it succeeds."""
        headers = {"authorization": f"Bearer {self.management_key}"}
        url = f"{self.servers[process % len(self.servers)].base_url}{path}"
        sent = httpx2.request(method, url, json=content or None, headers=headers, timeout=60)
        assert sent.status_code in range(200, 300), sent.text
        return sent.json()

    def payer(self, budget: str, k: int, process: int = 0) -> Payer:
        """Make an account and a key with a budget for exactly k requests, through a process."""
        name, limit = f"payer-{random.getrandbits(64):x}", round(k * COST, 9)
        credits_ = {"balance": limit, **dict.fromkeys(FREE, 0)}.get(budget, 1_000)
        account = self.manage("POST", "/accounts", process, name=name)["data"]["id"]
        if credits_:
            self.add_credits(account, credits_, process)
        limits: dict[str, Any] = {"account_id": account}
        if budget == "workspace":
            place = {"name": name, "slug": name, "account_id": account}
            made = self.manage("POST", "/workspaces", process, **place)["data"]["id"]
            self.manage("PUT", f"/workspaces/{made}/budgets/daily", process, limit_usd=limit)
            limits["workspace_id"] = made
        elif budget == "key":
            limits["limit"] = limit
        key = self.manage("POST", "/keys", process, name=name, **limits)
        used = f"{budget}:free" if budget in FREE else "exact"
        return Payer(key["key"], key["data"]["hash"], account, used, k)

    def add_credits(self, account: str, amount: float, process: int = 0) -> None:
        granted = {"amount": f"{amount:.9f}", "kind": "grant", "account_id": account}
        self.manage("POST", "/credits", process, **granted)

    def used(self, payer: Payer, process: int = 0) -> float:
        """Return what a key has used, as a process tells it."""
        return round(self.manage("GET", f"/keys/{payer.key_hash}", process)["data"]["usage"], 9)

    def differences(self, process: int = 0) -> list[Any]:
        """Return what `tollhouse ledger verify` finds."""
        transport = httpx2.HTTPTransport(uds=str(self.servers[process].control_socket))
        with httpx2.Client(transport=transport, base_url="http://local/v1", timeout=60) as http:
            return http.get("/ledger/verify").raise_for_status().json()["data"]["differences"]

    def holds_expired(self) -> int:
        """Return how many holds ended that no request ended: a bug that the log names."""
        logs = self.folder.glob("server-*/*.log")
        return sum(log.read_text().count("hold_expired") for log in logs)

    def grants(self) -> Counter[str]:
        """Return the metrics that count grants, summed over the servers."""
        found, headers = Counter[str](), {"authorization": f"Bearer {self.management_key}"}
        for server in self.servers:
            for line in httpx2.get(f"{server.origin}/metrics", headers=headers).text.splitlines():
                if "grant" in line and not line.startswith("#"):
                    found[line.rpartition(" ")[0]] += int(float(line.rpartition(" ")[2]))
        return found

    def _stop(self) -> None:
        for server in self.servers:
            server.process.send_signal(signal.SIGCONT)
            server.stop()

    def close(self) -> None:
        self._ending.close()


class Spenders:
    """Clients that keep their connections, and everything that they were answered."""

    def __init__(self, deployment: Deployment, seed: int = 0) -> None:
        self.deployment, self.chance = deployment, random.Random(seed)
        self.replies: list[Reply] = []

    async def __aenter__(self) -> Self:
        # To one port each request goes by itself: the system chooses the worker that gets it.
        fresh = len(self.deployment.servers) == 1
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=fresh),
            timeout=aiohttp.ClientTimeout(total=120),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def ask(
        self, key: str, body: bytes, process: int | None = None, reads: int = -1
    ) -> Reply:
        """Send a request through a process, or any; hang up after so many pieces of the reply."""
        servers = self.deployment.servers
        chosen = self.chance.randrange(len(servers)) if process is None else process % len(servers)
        url, reply = f"{servers[chosen].base_url}/chat/completions", Reply(chosen, time.monotonic())
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        try:
            async with self._http.post(url, data=body, headers=headers) as got:
                reply.ended, reply.status = time.monotonic(), got.status
                reply.generation_id = got.headers.get("x-generation-id", "")
                async for piece in got.content.iter_any():
                    reply.body, reads = reply.body + piece, reads - 1
                    if not reads:
                        got.close()
                        break
                reply.whole = reads != 0
        except (aiohttp.ClientError, OSError):
            reply.ended = reply.ended or time.monotonic()
        self.replies.append(reply)
        return reply

    async def times(self, count: int, payer: Payer, process: int | None = None) -> list[Reply]:
        """Send so many requests, each client the next one when it has its answer."""
        left, body = iter(range(count)), body_of(payer.model)

        async def client() -> list[Reply]:
            return [await self.ask(payer.key, body, process) for _ in left]

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


async def _together(client: Callable[[], Awaitable[list[Reply]]], clients: int) -> list[Reply]:
    return list(chain(*await asyncio.gather(*(client() for _ in range(clients)))))


@dataclass
class Round:
    """What a round came to."""

    budget: str
    how: str
    k: int
    replies: list[Reply] = field(repr=False)

    @property
    def problem(self) -> str:
        """What is wrong with it; nothing if it is exact."""
        admitted, refused = by_status(self.replies, 200), by_status(self.replies, 402, 429)
        last = max((reply.began for reply in admitted), default=0.0)
        phantoms = sum(reply.ended < last for reply in refused)
        others = len(self.replies) - len(admitted) - len(refused)
        if (len(admitted), phantoms, others) == (self.k, 0, 0):
            return ""
        return f"{len(admitted)} of {self.k} admitted, {phantoms} phantoms, {others} other answers"


def by_status(replies: Iterable[Reply], *statuses: int) -> list[Reply]:
    return [reply for reply in replies if reply.status in statuses]


async def one_round(spenders: Spenders, number: int, budget: str) -> Round:
    """Spend a new budget: in races and by filling it up, in turn."""
    k = FREE.get(budget) or spenders.chance.randint(1, 200)
    payer = await asyncio.to_thread(spenders.deployment.payer, budget, k, number)
    how = "fill" if number % 2 else "race"
    spend: Callable[[Payer], Awaitable[list[Reply]]] = getattr(spenders, how)
    return Round(budget, how, k, await spend(payer))


def seconds_of(replies: Iterable[Reply]) -> str:
    took = sorted((reply.ended - reply.began) * 1e3 for reply in replies) or [0.0]
    p50, p99 = (took[int(part * len(took))] for part in (0.5, 0.99))
    return f"p50 {p50:.1f} p99 {p99:.1f} max {took[-1]:.1f} ms"


async def _run(asked: argparse.Namespace, deployment: Deployment) -> int:
    problems, rounds, since, before = 0, 0, time.monotonic(), deployment.grants()
    async with Spenders(deployment, asked.seed) as spenders:
        for number in range(asked.rounds):
            for budget in asked.budget or BUDGETS:
                done = await one_round(spenders, number, budget)
                rounds, problems = rounds + 1, problems + bool(done.problem)
                how, took = done.problem or "exact", seconds_of(by_status(done.replies, 200))
                _say(f"{number:3} {budget:9} {done.how} k={done.k:3} {how}; {took}")
    seconds = time.monotonic() - since
    _say(f"admissions: {seconds_of(by_status(spenders.replies, 200))}")
    _say(f"refusals: {seconds_of(by_status(spenders.replies, 402, 429))}")
    for name, count in (deployment.grants() - before).items():
        _say(f"{name}: {count / seconds:.1f} a second")
    expired = deployment.holds_expired()
    _say(f"ledger verify: {deployment.differences()}, holds expired: {expired}")
    _say(f"seed {asked.seed}: {problems} of {rounds} rounds not exact, in {seconds:.0f} s")
    return bool(problems)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the result of the program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.spenders")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="of one server, in place of servers")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--budget", action="append", help=f"{', '.join(BUDGETS)}, workspace")
    asked = parser.parse_args()
    with ExitStack() as stack:
        env: dict[str, str] = {}
        if asked.database == "postgresql":
            databases = PostgresqlDatabases(stack.enter_context(postgresql_server()))
            env[DATABASE_URL] = plain_url(databases.take())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = Deployment(folder, env, servers=asked.servers, workers=asked.workers)
        stack.callback(made.close)
        return asyncio.run(_run(asked, made))


if __name__ == "__main__":
    sys.exit(main())
