"""What an earlier version left when it was killed comes up on this one: nothing is lost or doubled.

`tests/support/earlier_version.py` has written and packed it, with the earlier program:

    6f8af7a9    the last version whose processes did not spend budgets together, with one journal
    54224ca3    one of several processes, here of two workers: what was granted to them is left, too
"""

import asyncio
import json
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.faults.ledger import Ledger, PostgresqlLedger, SqliteLedger, verify
from tests.support import backdoor
from tests.support.earlier_version import COST, FILE, INTERN, ITEMS, LIMIT, Facts, providers, unpack
from tests.support.forked import run_forked
from tests.support.intern_client import InternClient
from tests.support.server_process import ServerProcess, clean_environment, start_server
from tests.support.waiting import wait_until

PACKED: Final = sorted(Path(__file__).with_name("earlier").glob("*.tar.xz"))
FOR_THE_SOAK: Final = {"54224ca3-postgresql.tar.xz"}
NANO: Final = 10**9
_BOOKS: Final = "SELECT id, cost_nano, cost_state FROM generations"


@dataclass
class Upgraded:
    """A server of this version, on what an earlier one has left."""

    server: ServerProcess
    facts: Facts
    ledger: Ledger

    def get(self, path: str, key: int = 0) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.facts.keys[key]}"}
        return httpx2.get(f"{self.server.base_url}{path}", headers=headers, timeout=60)

    def ask(self, key: int) -> int:
        """Send a request; return the status of its answer."""
        body = {"model": "acme/chat", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"authorization": f"Bearer {self.facts.keys[key]}"}
        url = f"{self.server.base_url}/chat/completions"
        return httpx2.post(url, json=body, headers=headers, timeout=60).status_code

    def ended_batch(self) -> dict[str, Any]:
        """Wait until the batch has ended; return it."""
        path = f"/batches/{self.facts.batch}"
        wait_until(lambda: self.get(path).json()["status"] == "completed")
        return self.get(path).json()


def _param(archive: Path) -> object:
    marks = [pytest.mark.postgresql] if "postgresql" in archive.name else []
    if archive.name in FOR_THE_SOAK:
        marks.append(pytest.mark.soak)
    return pytest.param(archive, id=archive.name.partition(".")[0], marks=marks)


@pytest.fixture(scope="module", params=[_param(each) for each in PACKED])
def upgraded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Upgraded]:
    folder, url = tmp_path_factory.mktemp("upgraded"), None
    ledger: Ledger = SqliteLedger(folder / "data")
    if "postgresql" in request.param.name:
        url = request.getfixturevalue("postgresql").empty()
        ledger = PostgresqlLedger(url)
    facts = unpack(request.param, folder, url)
    assert backdoor.journal_bytes(folder / "data"), "nothing is unsettled"
    if url is not None:  # an operator does it, where there may be several servers
        environment = clean_environment(ledger.env)
        done = run_forked("migrate", "--data-dir", folder / "data", env=environment)
        assert done.returncode == 0, done.stderr
    with (
        providers() as provided,
        start_server(folder, config=provided.config, env=ledger.env) as server,
    ):
        yield Upgraded(server, facts, ledger)


async def test_everything_is_charged_once_and_the_batch_ends(upgraded: Upgraded) -> None:
    facts, batch = upgraded.facts, await asyncio.to_thread(upgraded.ended_batch)
    assert batch["request_counts"] == {"total": ITEMS, "completed": ITEMS, "failed": 0}
    lines = upgraded.get(f"/batches/{batch['id']}/results").text.splitlines()
    results = [json.loads(line) for line in lines]
    assert Counter(each["custom_id"] for each in results) == Counter(
        f"c-{number}" for number in range(ITEMS)
    )
    items = [each["response"]["request_id"] for each in results]
    rows = [tuple(row) for row in await upgraded.ledger.rows(_BOOKS)]
    charged = Counter(row for row in rows if row[2] != "interrupted")
    answered = [*facts.replies[0], *facts.replies[1], *items]
    assert charged == Counter((each, COST * NANO, "exact") for each in answered)
    assert [row[1] for row in rows if row not in charged] == [0], "what was at a provider"
    used = [(len(facts.replies[0]) + ITEMS) * COST, len(facts.replies[1]) * COST]
    for number, cost in enumerate(used):
        shown = upgraded.get("/key", number).json()["data"]
        assert Decimal(str(shown["usage"])) == cost
    assert await asyncio.to_thread(verify, upgraded.server) == {"clean": True, "differences": []}
    assert backdoor.journal_bytes(upgraded.server.data_dir) == b""
    left = LIMIT - len(facts.replies[1])
    assert [upgraded.ask(1) for _ in range(left + 1)] == [*left * [200], 402]


@pytest.mark.sandbox
@pytest.mark.root
def test_a_suspended_intern_resumes_with_its_files(upgraded: Upgraded) -> None:
    interns, (name, content) = InternClient(upgraded.server, upgraded.facts.keys[0]), FILE
    assert interns.run(INTERN) == upgraded.facts.intern
    found = interns.daemon(upgraded.facts.intern, "GET", f"/files/{name}")
    assert (found.status_code, found.content) == (200, content)
