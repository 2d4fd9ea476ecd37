"""What a start says when other servers use its database."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from tollhouse.apps.core import build_core
from tollhouse.apps.serve import join_other_servers
from tollhouse.settings.sections import Settings

pytestmark = pytest.mark.postgresql


async def test_a_second_server_of_a_database_warns_that_limits_are_not_shared(
    migrated_postgresql: sa.URL, tmp_path: Path
) -> None:
    core = build_core(migrated_postgresql, Settings.model_validate({"data_dir": tmp_path}))
    with capture_logs() as logs:
        first = await join_other_servers(core)
        assert logs == []
        second = await join_other_servers(core)
    await second.close()
    await first.close()
    await core.database.close()
    [warning] = logs
    told = warning["log_level"], warning["event"], warning["others"]
    assert told == ("warning", "database_shared", 1)
    assert "Run one server" in warning["advice"]
