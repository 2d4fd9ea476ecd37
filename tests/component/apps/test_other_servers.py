"""What a start says when other servers use its database."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from tollhouse.apps.core import build_core
from tollhouse.apps.serve import join_other_servers
from tollhouse.kernel.errors import StartError
from tollhouse.settings.sections import Settings
from tollhouse.settings.service_sections import BlobSettings

pytestmark = pytest.mark.postgresql


LOCAL, SHARED, ELSEWHERE = (BlobSettings(bucket=bucket) for bucket in (None, "one", "two"))


@pytest.mark.parametrize(
    ("files", "others"), [(LOCAL, LOCAL), (LOCAL, SHARED), (SHARED, LOCAL), (SHARED, ELSEWHERE)]
)
async def test_a_second_server_that_cannot_read_the_files_of_the_first_does_not_start(
    migrated_postgresql: sa.URL, tmp_path: Path, files: BlobSettings, others: BlobSettings
) -> None:
    core = build_core(migrated_postgresql, Settings.model_validate({"data_dir": tmp_path}))
    first = await join_other_servers(core, others)
    with pytest.raises(StartError, match="another server runs on this database"):
        await join_other_servers(core, files)
    await first.close()
    await (await join_other_servers(core, files)).close()
    await core.database.close()


async def test_a_second_server_of_a_database_says_that_it_is_not_alone(
    migrated_postgresql: sa.URL, tmp_path: Path
) -> None:
    core = build_core(migrated_postgresql, Settings.model_validate({"data_dir": tmp_path}))
    with capture_logs() as logs:
        first = await join_other_servers(core, SHARED)
        assert logs == []
        second = await join_other_servers(core, SHARED)
    await second.close()
    await first.close()
    await core.database.close()
    [warning] = logs
    told = warning["log_level"], warning["event"], warning["others"]
    assert told == ("info", "database_shared", 1)
