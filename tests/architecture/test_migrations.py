"""Each migration has a test of its own, which upgrades what the revision before it has written."""

from pathlib import Path

from tollhouse.storage.migrator import MIGRATIONS

BASELINE = "0001_baseline.py"
TESTS = Path(__file__).parents[1] / "component/storage"


def untested(migrations: Path, tests: Path) -> list[str]:
    files = sorted(file.name for file in migrations.glob("[0-9]*.py"))
    assert files[0] == BASELINE
    return [name for name in files[1:] if not (tests / f"test_migration_{name}").exists()]


def test_each_migration_after_the_baseline_has_its_upgrade_test() -> None:
    assert untested(MIGRATIONS / "versions", TESTS) == []


def test_one_without_is_found(tmp_path: Path) -> None:
    for name in (BASELINE, "0002_added.py", "0003_forgotten.py", "test_migration_0002_added.py"):
        (tmp_path / name).touch()
    assert untested(tmp_path, tmp_path) == ["0003_forgotten.py"]
