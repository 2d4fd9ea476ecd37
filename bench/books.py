"""`python -m bench.books`: what a charge costs on its way to the database, in CPU time.

    accept    the server's thread, from the finished reply to a charge that is in the journal
    a row     the books process, for groups of 100 and 1,000; with budgets, as processes share them

An SQLite file is made; `--database` names an empty PostgreSQL database in place of it. `--repo` is
another checkout, measured in turn with this one. The least of all rounds counts: what else the
machine does can only add to it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import median
from time import thread_time_ns
from typing import TYPE_CHECKING, Final

import msgspec
import sqlalchemy as sa

from bench import cpu
from tollhouse.accounting.settlement.books import BooksProcess
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.accounting.types import Attempt, GenerationRecord, attempts_json
from tollhouse.storage.database import open_database
from tollhouse.storage.failures import sqlite_url
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS: Final = {100: 40, 1_000: 8}
"""How many of each size are measured, after one that is not."""
_ACCOUNTS: Final = 4
_KEYS: Final = 5
"""Of each account; each is asked for two models."""
_ROUNDS: Final = 5
_START_MS: Final = 1_773_311_400_000
_ATTEMPTS: Final = attempts_json([Attempt("acme", 200, 120)])
_DICE: Final = Random(1)


def _record(number: int) -> GenerationRecord:
    account, key = _DICE.randrange(_ACCOUNTS), _DICE.randrange(_KEYS)
    return GenerationRecord(
        id=f"gen-{_START_MS // 1000 + number // 100}-{_DICE.getrandbits(80):020x}",
        account_id=f"account-{account}",
        workspace_id=f"workspace-{account}",
        key_hash=f"{account}{key}" * 32,
        api_type="completions",
        model=f"acme/{_DICE.choice(['large', 'small'])}",
        provider="acme",
        provider_model="large-2026",
        upstream_id=f"chatcmpl-{_DICE.getrandbits(96):024x}",
        is_byok=False,
        streamed=True,
        cancelled=False,
        finish_reason="stop",
        native_finish_reason="stop",
        cost_state="exact",
        cost_nano=760_000,
        provider_cost_nano=760_000,
        input_tokens=480,
        output_tokens=140,
        latency_ms=12,
        generation_ms=340,
        attempts_json=_ATTEMPTS,
        user_agent="OpenAI/Python 2.8.0",
        created_ms=_START_MS + 10 * number,
    )


async def _fill(url: sa.URL, *, shared: bool) -> None:
    """Empty the database, and give it accounts, and with `shared` budgets of all that there is."""
    database = open_database(url)
    names = "postings generations account_totals account_days key_totals key_days usage_days"
    async with database.writing() as write:
        for table in f"{names} owner_days budgets leases holders accounts".split():
            await write.execute(sa.text(f"DELETE FROM {table}"))  # noqa: S608
        for account in range(_ACCOUNTS):
            await write.execute(
                sa.text(
                    "INSERT INTO accounts (id, name, type, created_at) "  # noqa: S608
                    f"VALUES ('account-{account}', 'Acme', 'prepaid', {_START_MS})"
                )
            )
            keys = [("key", f"{account}{key}" * 32) for key in range(_KEYS)]
            owners = [("account", f"account-{account}"), ("workspace", f"workspace-{account}")]
            for scope, id_ in (*owners, *keys) if shared else ():
                budget = sa.text(
                    "INSERT INTO budgets (scope, id, period, limit_nano) "  # noqa: S608
                    f"VALUES ('{scope}', '{id_}', '', {10**15})"
                )
                await write.execute(budget)
    await database.close()


async def _measure(url: sa.URL, folder: Path, *, shared: bool) -> dict[str, float]:
    """Return microseconds of CPU time by what they were spent on."""
    await _fill(url, shared=shared)
    journal = Journal(folder / "journal", "bench")
    books = BooksProcess(url, journal.folder, asyncio.Lock(), "bench")
    journal.open()
    settler = Settler(journal, books)
    await books.start()
    [child] = cpu.tree(os.getpid())[1:]
    found: dict[str, list[float]] = defaultdict(list)
    number = 0
    for size, groups in GROUPS.items():
        for _ in range(groups + 1):
            records = [_record(number + each) for each in range(size)]
            number += size
            for record in records:
                settler.begin(record)
            before, begin = cpu.read(child), thread_time_ns()
            for record in records:
                settler.accept(record)
            found["accept"].append((thread_time_ns() - begin) / 1e3 / size)
            await settler.settled()
            used = cpu.cpu_time(before, cpu.read(child)).seconds
            found[f"a row of {size}"].append(used * 1e6 / size)
    await settler.close()
    with_budgets = ", budgets" if shared else ""
    return {f"{name}{with_budgets}": median(each[1:]) for name, each in found.items()}


def _measure_all(database: str | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=Path(".cache")) as folder:
        url = sa.make_url(database) if database else sqlite_url(Path(folder) / "books.db")
        upgrade(url)
        found: dict[str, float] = {}
        for shared in (False, True):
            found |= asyncio.run(_measure(url, Path(folder) / str(shared), shared=shared))
    return found


def _in(tree: Path, database: str | None) -> dict[str, float]:
    """Measure a checkout, in a process of its own."""
    path = os.pathsep.join([str(tree / "src"), str(Path(__file__).parents[1])])
    options = ["--database", database] if database else []
    done = subprocess.run(
        [sys.executable, "-m", "bench.books", "--once", *options],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.books", description=__doc__)
    parser.add_argument("--repo", type=Path, metavar="PATH", help="another checkout")
    parser.add_argument("--database", metavar="URL", help="an empty PostgreSQL database")
    parser.add_argument("--once", action="store_true", help="print one round of this as JSON")
    options = parser.parse_args(arguments)
    Path(".cache").mkdir(exist_ok=True)
    if options.once:
        print(msgspec.json.encode(_measure_all(options.database)).decode())
        return
    trees = [Path(__file__).parents[1], *([options.repo.resolve()] if options.repo else [])]
    rounds = [[_in(tree, options.database) for tree in trees] for _ in range(_ROUNDS)]
    print(f"{'us of CPU time':24}" + "".join(f"{tree.name:>16}" for tree in trees))
    for name in rounds[0][0]:
        figures = [min(each[place][name] for each in rounds) for place in range(len(trees))]
        print(f"{name:24}" + "".join(f"{figure:16.1f}" for figure in figures))


if __name__ == "__main__":
    main()
