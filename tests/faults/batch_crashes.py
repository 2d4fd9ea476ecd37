"""A gateway with batches that is killed and restarted, and the checks at the end."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.faults.batch_provider import COST_NANO, MODEL, BatchProvider
from tests.faults.ledger import Ledger, verify
from tests.support import backdoor
from tests.support.disk import files_in
from tests.support.failpoints import Failpoints
from tests.support.server_process import ServerProcess, start_server

SECONDS = 300.0
"""Seconds: longer than anything here takes on a busy machine."""
ENDED = {"completed", "failed", "expired", "cancelled"}
CHUNK_SECONDS: Mapping[str, object] = {
    "part_seconds": 0.1,
    "lease_seconds": 1,
    "round_seconds": 0.2,
    "requests_per_provider": 16,
    "chunks_at_once": 2,
}


def item(number: int, prefix: str = "item") -> str:
    """Return an item's name: its `custom_id`, and how the provider knows it."""
    return f"{prefix}-{number}"


def batch_body(items: int, size: int = 0, prefix: str = "item") -> bytes:
    """Return a batch of so many items, filled up to so many bytes together."""
    filling = " x" * (size // items // 2)
    requests = [
        {
            "custom_id": name,
            "body": {"max_tokens": 10, "messages": [{"role": "user", "content": name + filling}]},
        }
        for name in (item(number, prefix) for number in range(items))
    ]
    envelope = {"endpoint": "/v1/chat/completions", "model": MODEL, "requests": requests}
    return json.dumps(envelope).encode()


class Unreachable(Exception):
    """The gateway does not answer, or its response was cut off."""


class Gateway:
    """One gateway process after the other, on one data folder."""

    def __init__(
        self,
        home: Path,
        ledger: Ledger,
        provider: BatchProvider,
        *,
        worker: str = "one",
        key: str = "",
        more: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.home = home
        self.key = key
        self.ledger = ledger
        more = more or {}
        sections = {**more, "batches": {**CHUNK_SECONDS, **more.get("batches", {})}}
        self._config = provider.config(worker) + "".join(
            f"{name}: {json.dumps(dict(values))}\n" for name, values in sections.items()
        )
        self.stops = Failpoints(home / "stops")
        self.server: ServerProcess | None = None
        self._http = httpx2.Client(timeout=60)

    def start(self) -> None:
        env = {**self.ledger.env, **self.stops.env}
        self.server = start_server(self.home, config=self._config, env=env)
        self.key = self.key or self.server.api_key

    @property
    def running(self) -> ServerProcess:
        assert self.server is not None
        return self.server

    @property
    def pid(self) -> int:
        return self.running.process.pid

    @property
    def is_alive(self) -> bool:
        return self.server is not None and self.server.process.poll() is None

    @property
    def blobs(self) -> Path:
        return self.running.data_dir / "blobs"

    def kill(self) -> None:
        """Kill the gateway, which may have been killed already."""
        if self.server is not None:
            self.server.kill()

    def close(self) -> None:
        self.kill()
        self._http.close()

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """Send a request.

        Raises:
            Unreachable: No whole answer came.
        """
        headers = {"authorization": f"Bearer {self.key}", **more.pop("headers", {})}
        url = f"{self.running.base_url}{path}"
        try:
            return self._http.request(method, url, headers=headers, **more)
        except httpx2.TransportError as error:
            raise Unreachable from error

    def submit(self, body: bytes) -> str:
        """Submit a batch, assert the 202 and return its id."""
        headers = {"content-type": "application/json"}
        answer = self.ask("POST", "/batches", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]


@dataclass
class BatchWatch:
    """Polls a batch; asserts that its counts never fall."""

    batch_id: str
    bad_answers: bool = False
    """Whether a response may be an error, while a dependency is away."""
    counts: dict[str, int] = field(default_factory=lambda: {"completed": 0, "failed": 0})
    shown: dict[str, Any] = field(default_factory=dict)

    def look(self, gateway: Gateway) -> bool:
        """Poll once; return whether the batch has ended."""
        try:
            answer = gateway.ask("GET", f"/batches/{self.batch_id}")
        except Unreachable:
            return False
        if answer.status_code != 200:
            assert self.bad_answers, answer.text
            assert answer.status_code >= 500, answer.text
            return False
        self.shown = answer.json()
        counts = self.shown["request_counts"]
        for name, before in self.counts.items():
            assert counts[name] >= before, f"{name} fell"
        assert counts["completed"] + counts["failed"] <= counts["total"]
        self.counts = {name: counts[name] for name in self.counts}
        return self.shown["status"] in ENDED

    def until_ended(self, gateway: Gateway) -> dict[str, Any]:
        """Wait for the end; return the batch."""
        for _ in polling(f"the end of {self.batch_id}"):
            assert gateway.is_alive, gateway.running.failure("ended by itself")
            if self.look(gateway):
                break
        return self.shown

    def until_killed(self, gateway: Gateway) -> None:
        """Wait until the gateway was killed; the batch must not end before."""
        for _ in polling("a kill"):
            if not gateway.is_alive:
                break
            assert not self.look(gateway), "the batch ended before the kill"
        gateway.kill()


def polling(what: str, pause: float = 0.1) -> Iterator[None]:
    """Yield again and again until a deadline."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        yield
        time.sleep(pause)
    raise AssertionError(f"waited {SECONDS:g} s for {what}")


def wait_for(condition: Callable[[], object], what: str) -> None:
    for _ in polling(what):
        if condition():
            return


def seeded() -> random.Random:
    """Return a random generator whose seed is printed."""
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    return random.Random(seed)


def rows(ledger: Ledger, query: str) -> list[Any]:
    with asyncio.Runner() as runner:
        return [tuple(row) for row in runner.run(ledger.rows(query))]


def one(ledger: Ledger, query: str) -> Any:
    [[value]] = rows(ledger, query)
    return value


def durable_items(ledger: Ledger, batch_id: str) -> Counter[int]:
    """Return the numbers of the items with stored results, and how often each occurs."""
    found = rows(ledger, f"SELECT numbers FROM batch_parts WHERE batch_id = '{batch_id}'")  # noqa: S608 - ours
    return Counter(number for (numbers,) in found for number in json.loads(numbers))


@dataclass
class KillLog:
    """The state at each kill of a run, and the calls that each may have repeated."""

    ledger: Ledger
    provider: BatchProvider
    batch_id: str
    prefix: str = "item"
    begun_again: Counter[str] = field(default_factory=Counter)
    """How often each item had been sent without a durable result when a kill came."""
    count: int = 0

    def happened(self) -> None:
        """Record the state at a kill, before the gateway is started again."""
        self.count += 1
        durable = {
            item(number, self.prefix) for number in durable_items(self.ledger, self.batch_id)
        }
        self.begun_again.update(set(self.provider.calls) - durable)

    def assert_no_item_called_without_need(self, most_in_flight: int) -> None:
        """Assert that only items in flight at a kill were called again, once for each kill."""
        again = {name: calls - 1 for name, calls in self.provider.calls.items() if calls > 1}
        seen = self.provider.seen()["kills"]
        hit = sum(kill["open"] > 0 for kill in seen)
        print(  # noqa: T201 - the figures of a run
            f"kills {self.count}, that hit work {hit}, items called again {len(again)} "
            f"({sum(again.values())} calls), at most {self.begun_again.total()}"
        )
        unneeded = {name: n for name, n in again.items() if n > self.begun_again[name]}
        assert not unneeded, "called again though its result was durable"
        # An item whose answer has come may not be stored yet, while another has taken its place.
        assert len(again) <= 2 * self.count * most_in_flight
        assert hit * 2 > self.count, "most kills have to hit work in flight"


def assert_all_once(ended: dict[str, Any], items: int, prefix: str = "item") -> list[str]:
    """Return the ids of the generations of a completed batch, each of whose items has a result."""
    assert ended["status"] == "completed"
    assert ended["request_counts"] == {"total": items, "completed": items, "failed": 0}
    results = ended["results"]
    names = Counter(each["custom_id"] for each in results)
    assert names == Counter(item(number, prefix) for number in range(items))
    assert [each["error"] for each in results if each["error"] is not None] == []
    for each in results:
        said = each["response"]["body"]["choices"][0]["message"]["content"]
        assert said == f"{each['custom_id']} is done"
    return [each["response"]["request_id"] for each in results]


def assert_settled(gateway: Gateway, ended: Sequence[dict[str, Any]]) -> None:
    """Assert that each result is booked once and that temporary data is gone.

    Args:
        gateway: A running one; it is stopped and started again.
        ended: Every batch that there is, with its results.
    """
    ledger = gateway.ledger
    results = [each for batch in ended for each in batch["results"]]
    answered = sorted(each["response"]["request_id"] for each in results if each["response"])
    booked = rows(ledger, "SELECT id, cost_nano FROM generations")
    assert sorted(name for name, _ in booked) == answered
    cost = sum(cost for _, cost in booked)
    assert cost == len(answered) * COST_NANO
    shown = sum(batch["usage"]["cost"] for batch in ended if batch["usage"])
    assert round(shown * 1e9) == cost
    assert (one(ledger, "SELECT sum(cost_nano) FROM batches") or 0) == cost
    assert (one(ledger, "SELECT sum(amount_nano) FROM postings WHERE kind = 'usage'") or 0) == cost
    assert (one(ledger, "SELECT sum(used_nano) FROM account_totals") or 0) == cost
    assert (one(ledger, "SELECT sum(usage_nano) FROM key_totals") or 0) == cost
    assert one(ledger, "SELECT count(*) FROM reservations") == 0
    assert one(ledger, "SELECT count(*) FROM batch_uploads") == 0
    assert one(ledger, "SELECT count(*) FROM batch_chunks WHERE state <> 'done'") == 0
    for batch in ended:
        counts = batch["request_counts"]
        assert len(batch["results"]) == counts["completed"] + counts["failed"] == counts["total"]
        assert set(durable_items(ledger, batch["id"]).values()) == {1}
    assert verify(gateway.running) == {"clean": True, "differences": []}
    gateway.running.stop()
    assert backdoor.journal_bytes(gateway.running.data_dir) == b""


def blobs_of(gateway: Gateway) -> set[str]:
    """Return the batches of which there are files below the data folder."""
    if not gateway.blobs.exists():
        return set()
    return {name.split("/")[1] for name in files_in(gateway.blobs)}
