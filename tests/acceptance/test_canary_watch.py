"""The check of all files that a test run has written."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest

from tests.support.canaries import PLANTED, PROVIDER_KEY, Scanner, new_canary
from tests.support.canary_watch import leaks_in, watch_answers


def test_a_run_that_leaks_reports_where() -> None:
    # Not in a folder of this run: the watch over this very run would find it too.
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clean.log").write_text("nothing")
        (folder / "test_one").mkdir()
        (folder / "test_one" / "server.log").write_text(f"key {PLANTED[0]} sent")
        with closing(sqlite3.connect(folder / "kept.db")) as connection, connection:
            connection.execute("CREATE TABLE kept (value TEXT)")
            connection.execute("INSERT INTO kept VALUES (?)", (PLANTED[49],))
        assert leaks_in(folder) == [
            "kept.db (kept.db)",
            "kept.db (kept.db, a cell)",
            "test_one/server.log (server.log)",
        ]


@pytest.mark.parametrize("key", [PLANTED[3], PROVIDER_KEY])
def test_a_run_that_leaks_a_value_or_a_providers_key_is_seen(key: str) -> None:
    with TemporaryDirectory() as name:
        (Path(name) / "server.log").write_text(f"Authorization: Bearer {key}")
        assert leaks_in(Path(name)) == ["server.log (server.log)"]


KEY = new_canary(1, "proof of the watch")
REPLIES = {
    "in a body": ([f"{{}} {KEY}".encode()], {}),
    "in two pieces": ([KEY[:9].encode(), KEY[9:].encode()], {}),
    "in a header": ([b"{}"], {"x-echo": KEY}),
}


@pytest.mark.parametrize(("pieces", "headers"), REPLIES.values(), ids=REPLIES)
async def test_an_answer_that_shows_a_providers_key_is_kept(
    pieces: list[bytes], headers: dict[str, str]
) -> None:
    async def awaited() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        watch_answers(patch, Path(name), KEY)
        httpx2.Response(200, headers=headers, content=iter(pieces), request=REQUEST).read()
        assert Scanner([KEY]).in_folder(Path(name)) != set()
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        watch_answers(patch, Path(name), KEY)
        await httpx2.Response(200, headers=headers, content=awaited(), request=REQUEST).aread()
        assert Scanner([KEY]).in_folder(Path(name)) != set()


REQUEST = httpx2.Request("GET", "http://127.0.0.1/v1/models")
