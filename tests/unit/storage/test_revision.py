import re

from alembic.config import Config
from alembic.script import ScriptDirectory

from tollhouse.storage.migrator import MIGRATIONS
from tollhouse.storage.revision import HEAD


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return ScriptDirectory.from_config(config)


def test_the_server_requires_the_newest_migration() -> None:
    assert scripts().get_heads() == [HEAD]


def test_revisions_are_numbered_in_the_order_in_which_they_apply() -> None:
    revisions = [script.revision for script in scripts().walk_revisions("base", "heads")]
    assert revisions == sorted(revisions, reverse=True)
    assert all(re.fullmatch(r"r[0-9]{4}", revision) for revision in revisions)


def test_a_migrations_file_begins_with_its_number() -> None:
    for script in scripts().walk_revisions():
        assert script.module.__file__ is not None
        assert f"/{script.revision.removeprefix('r')}_" in script.module.__file__
