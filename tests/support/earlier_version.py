"""What an earlier version left behind when it was killed: written by its own program, and packed.

    git worktree add /tmp/old COMMIT && make -C /tmp/old setup
    python -m tests.support.earlier_version /tmp/old/.venv/bin/tollhouse \\
        tests/faults/earlier/COMMIT-sqlite.tar.xz          or COMMIT-postgresql.tar.xz

    data/           the data folder: its database, a suspended intern, a batch under way, a journal
                    with charges that are not booked, and a request that is at a provider
    database.sql    what pg_dump says of the database on PostgreSQL
    facts.json      a `Facts`

Run it as root, where interns' files are those of other users. Further arguments go to `serve`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx2
import sqlalchemy as sa

from tests.support import backdoor
from tests.support.accounts import AccountClient, Accounts
from tests.support.child_processes import GONE, children_of
from tests.support.intern_client import InternClient
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.postgresql_server import BINARIES, postgresql_server
from tests.support.scripted_providers import ScriptedProviders, reply
from tests.support.server_process import (
    DATABASE_URL,
    ServerProcess,
    clean_environment,
    start_server,
)
from tests.support.waiting import wait_until

ITEMS: Final = 24
"""Of the batch."""
_ITEMS_BEFORE: Final = 8
"""How many a provider answers until the kill."""
_REQUESTS: Final = 3
"""Of each key, before the books stand still, and as many after that."""
LIMIT: Final = 10
"""For how many requests the limit of the second key is."""
COST: Final = Decimal("0.03")
"""Of a reply, in credits."""
INTERN: Final = "ada"
FILE: Final = ("note.txt", b"written before the kill")
_NOTHING_LEFT: Final = {".lock", "logs", "egress", "run"}
"""What says nothing to who comes after."""
_REPLY: Final = reply(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "said"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
)


@dataclass
class Facts:
    """What clients of the earlier version knew when it was killed."""

    keys: list[str]
    """One of the first account without a limit, and one of another account with `LIMIT`."""
    management_key: str
    intern: str = ""
    batch: str = ""
    replies: list[list[str]] = field(default_factory=lambda: [[], []])
    """The generations that each key was answered."""


class Providers:
    """Answers chats, and the items of batches; some are held until the end of the block."""

    def __init__(self, scripted: ScriptedProviders, items: int = ITEMS) -> None:
        self.scripted, self._items = scripted, items
        self._lock, self._over = threading.Lock(), threading.Event()
        scripted.say("chat", _REPLY)
        scripted.say("items", self._item)
        scripted.say("held", self._held)

    def _item(self, body: Any) -> bytes:
        with self._lock:
            self._items -= 1
            is_answered = self._items >= 0
        return _REPLY if is_answered else self._held(body)

    def _held(self, _body: Any) -> bytes:
        self._over.wait()
        return b""

    def end(self) -> None:
        self._over.set()

    @property
    def config(self) -> str:
        """Settings with a model of each provider."""
        names, origin = ("chat", "items", "held"), self.scripted.origin
        pricing = {"prompt": "0.001", "completion": "0.01"}
        providers = [
            {"slug": name, "kind": "openai_compatible", "base_url": f"{origin}/{name}/v1"}
            for name in names
        ]
        models = [
            {
                "id": f"acme/{name}",
                "context_length": 8192,
                "endpoints": [{"provider": name, "model": "m", "pricing": pricing}],
            }
            for name in names
        ]
        return json.dumps({"providers": providers, "models": models})


@contextmanager
def providers(items: int = ITEMS) -> Generator[Providers]:
    """Run the providers, which answer so many items of batches and hold the others."""
    with ScriptedProviders() as scripted:
        made = Providers(scripted, items)
        try:
            yield made
        finally:
            made.end()


def unpack(archive: Path, folder: Path, url: sa.URL | None) -> Facts:
    """Leave in a folder, and in an empty PostgreSQL database, what the earlier version did.

    Its batch is from now on: it would be over, otherwise.
    """
    with tarfile.open(archive) as packed:
        packed.extractall(folder, numeric_owner=True, filter="fully_trusted")  # noqa: S202 - ours
    renewed = "UPDATE batches SET expires_at = expires_at + 10000000000000"
    if url is None:
        database = ServerProcess.__new__(ServerProcess)
        database.database = folder / "data" / "tollhouse.db"
        backdoor.execute(database, renewed)
    else:
        asyncio.run(_load(url, (folder / "database.sql").read_text(), "RESET ALL", renewed))
    return Facts(**json.loads((folder / "facts.json").read_text()))


async def _load(url: sa.URL, *scripts: str) -> None:
    async with backdoor.connected(url) as connection:
        for each in scripts:
            await connection.execute(each)


def _live(server: ServerProcess, provided: Providers) -> Facts:
    """Leave all of it behind, up to the kill."""
    interns = InternClient(server)
    intern = interns.create(INTERN)
    chosen = interns.request("PATCH", f"/interns/{intern}", {"model": "acme/chat"})
    assert chosen.is_success, chosen.text
    facts = Facts([server.api_key], server.management_key, interns.run(INTERN))
    assert interns.put_file(facts.intern, *FILE) in {200, 201, 204}
    interns.suspend(facts.intern)
    with closing(Accounts(server)) as accounts:
        limited = accounts.create("5", limit=float(LIMIT * COST))
        first = AccountClient(accounts.http, server.api_key, "", "")
        clients = (first, limited)
        facts.keys.append(limited.key)

        def ask() -> None:
            for client, generations in zip(clients, facts.replies, strict=True):
                for _ in range(_REQUESTS):
                    answered = client.ask("acme/chat")
                    assert answered.status_code == 200, answered.text
                    assert Decimal(str(answered.json()["usage"]["cost"])) == COST
                    generations.append(answered.headers["x-generation-id"])

        ask()
        for client, generations in zip(clients, facts.replies, strict=True):
            for each in generations:
                wait_until(lambda c=client, g=each: _is_booked(c, g))
        bodies = [{"messages": [{"role": "user", "content": f"item {n}"}]} for n in range(ITEMS)]
        requests = [{"custom_id": f"c-{n}", "body": body} for n, body in enumerate(bodies)]
        batch = {"endpoint": "/v1/chat/completions", "model": "acme/items", "requests": requests}
        sent = first.post("/batches", batch)
        assert sent.status_code == 202, sent.text
        facts.batch = sent.json()["id"]
        wait_until(lambda: _completed(first, facts.batch) == _ITEMS_BEFORE)
        _send(signal.SIGSTOP, [pid for pid in _tree(server.process.pid) if _is_books(pid)])
        ask()
        asking = threading.Thread(target=_ask_until_killed, args=(server,))
        asking.start()
        wait_until(lambda: provided.scripted.asked("held"))
    _send(signal.SIGKILL, _tree(server.process.pid))
    server.kill()
    asking.join()
    return facts


def _is_booked(client: AccountClient, generation: str) -> bool:
    found = client.http.get("/generation", params={"id": generation}, headers=client.headers)
    return found.status_code == 200


def _completed(client: AccountClient, batch: str) -> int:
    found = client.http.get(f"/batches/{batch}", headers=client.headers).json()
    return found["request_counts"]["completed"]


def _ask_until_killed(server: ServerProcess) -> None:
    said = [{"role": "user", "content": "hold"}]
    with suppress(httpx2.TransportError):
        httpx2.post(
            f"{server.base_url}/chat/completions",
            json={"model": "acme/held", "messages": said},
            headers=server.authorization,
            timeout=120,
        )


def _tree(pid: int) -> list[int]:
    return [pid, *(each for child in children_of(pid) for each in _tree(child))]


def _is_books(pid: int) -> bool:
    with suppress(*GONE):
        return "accounting.settlement" in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _dump(url: sa.URL, file: Path) -> None:
    options = ["--inserts", "--no-owner", "--no-privileges"]
    place = ["--host", str(url.query["host"]), "--username", str(url.username), str(url.database)]
    command = [BINARIES / "pg_dump", *options, *place]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("\\")))


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    gone = not _NOTHING_LEFT.isdisjoint(member.name.split("/"))
    return None if gone or not (member.isreg() or member.isdir() or member.issym()) else member


def write(program: str, archive: Path, options: list[str]) -> None:
    """Have an earlier version live and be killed, and pack what it has left behind."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, env = None, dict[str, str]()
        if archive.name.endswith("-postgresql.tar.xz"):
            url = PostgresqlDatabases(stack.enter_context(postgresql_server())).empty()
            env[DATABASE_URL] = plain_url(url)
            migrate = [program, "migrate", "--data-dir", folder / "data"]
            subprocess.run(migrate, env=clean_environment(env), check=True, capture_output=True)
        (folder / "data").mkdir(mode=0o700, exist_ok=True)
        provided = stack.enter_context(providers(_ITEMS_BEFORE))
        server = start_server(
            folder, config=provided.config, env=env, args=options, program=(program,)
        )
        stack.callback(server.kill)
        facts = _live(server, provided)
        (folder / "facts.json").write_text(json.dumps(asdict(facts)))
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(folder / "data", "data", filter=_kept)
            packed.add(folder / "facts.json", "facts.json")
            if url is not None:
                _dump(url, folder / "database.sql")
                packed.add(folder / "database.sql", "database.sql")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
