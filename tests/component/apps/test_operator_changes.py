"""What a start records of its settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tollhouse.apps.core import build_core
from tollhouse.apps.serve import record_settings
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import INSTALLATION, AuditEntry
from tollhouse.settings.sections import Settings

ACME = {
    "slug": "acme",
    "kind": "openai_compatible",
    "base_url": "https://a.example.com",
    "api_key": "hunter2-hunter2",
}


class Starts:
    """Starts of a server on one database."""

    def __init__(self, url: sa.URL, folder: Path) -> None:
        self._url, self._folder = url, folder

    async def start(self, **settings: Any) -> Sequence[AuditEntry]:
        """Start with these settings; return what the record of the installation has then."""
        wanted = Settings.model_validate({"data_dir": self._folder, **settings})
        core = build_core(self._url, wanted)
        try:
            await record_settings(wanted, core)
            async with core.database.reading() as read:
                rows = await AuditService(core.clock).rows(read, INSTALLATION, 0, 100)
        finally:
            await core.database.close()
        return [row.entry for row in rows]


@pytest.fixture
def starts(database_url: sa.URL, tmp_path: Path) -> Starts:
    return Starts(database_url, tmp_path)


async def test_a_start_with_nothing_set_records_nothing(starts: Starts) -> None:
    assert await starts.start() == []


async def test_a_start_records_what_is_set_and_the_next_one_nothing_more(starts: Starts) -> None:
    for _ in range(2):
        [entry] = await starts.start(server={"port": 9000})
        assert entry.changes == {"server.port": {"old": 8080, "new": 9000}}


async def test_a_start_records_what_differs_from_the_one_before(starts: Starts) -> None:
    await starts.start(server={"port": 9000}, logging={"level": "debug"})
    entry = (await starts.start(server={"port": 9001}))[-1]
    assert entry.changes == {
        "server.port": {"old": 9000, "new": 9001},
        "logging.level": {"old": "debug", "new": "info"},
    }


async def test_a_provider_that_is_gone_is_told_and_its_key_never(starts: Starts) -> None:
    added, removed = (await starts.start(providers=[ACME]))[-1], (await starts.start())[-1]
    assert added.changes is not None
    assert removed.changes is not None
    url = "providers.acme.base_url"
    assert added.changes[url]["new"].startswith("https://a.example.com")
    assert removed.changes[url]["new"] is None
    assert "hunter2-hunter2" not in str((added, removed))
