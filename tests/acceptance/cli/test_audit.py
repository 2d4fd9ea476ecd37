"""`tollhouse audit` on a record of five rows, intact and tampered with."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner

ROWS = 5


@dataclass
class Record:
    """A data folder with a record of five rows and no running server."""

    folder: Path
    runner: CommandRunner

    def run(self, *args: str) -> CommandResult:
        return self.runner.run("audit", *args, "--data-dir", self.folder)

    def verified(self, *args: str) -> Any:
        return self.run("verify", *args, "--json").json()

    def fault(self, *args: str) -> tuple[int, str]:
        """Return the row and the reason of the fault that a verification finds."""
        done = self.run("verify", *args, "--json")
        assert (done.code, done.err) == (1, ""), done
        found = json.loads(done.out)
        assert found["ok"] is False
        return found["row"], found["reason"]

    def change(self, *statements: str) -> None:
        """Write to the database, past the gateway."""
        with closing(sqlite3.connect(self.folder / "tollhouse.db")) as database, database:
            for statement in statements:
                database.execute(statement)

    def exported(self) -> Path:
        file = self.folder.parent / "audit.jsonl"
        self.run("export", "-o", str(file), "--force", "--json").json()
        return file


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory, template: Path, runner: CommandRunner
) -> Path:
    home = tmp_path_factory.mktemp("audited")
    folder = shutil.copytree(template, home / "data")
    old = home / "old.env"
    old.write_text("".join(f"secret{number}=x\n" for number in range(ROWS)))
    of = ("--workspace", "default", "--data-dir", folder, "--json")
    assert len(runner.run("vault", "import", old, *of).json()["imported"]) == ROWS
    return folder


@pytest.fixture(scope="module")
def export(written: Path, tmp_path_factory: pytest.TempPathFactory, runner: CommandRunner) -> str:
    """The record's rows as lines, with no data folder beside them."""
    return (
        Record(shutil.copytree(written, tmp_path_factory.mktemp("exported") / "data"), runner)
        .exported()
        .read_text()
    )


@pytest.fixture
def record(written: Path, tmp_path: Path, runner: CommandRunner) -> Record:
    return Record(shutil.copytree(written, tmp_path / "data"), runner)


def test_an_intact_record_verifies(record: Record) -> None:
    found = record.verified()
    assert (found["ok"], found["rows"]) == (True, ROWS)
    assert found["head"].startswith(f"{ROWS}:")
    assert record.run("verify").out == f"rows\t{ROWS}\nhead\t{found['head']}\n"


def test_an_empty_record_verifies(record: Record) -> None:
    assert record.verified("--installation") == {"ok": True, "rows": 0, "head": f"0:{'0' * 64}"}


def test_the_record_of_the_installation_is_verified_separately(record: Record) -> None:
    record.runner.run("vault", "rotate-kek", "--data-dir", record.folder, "--json").json()
    assert record.verified("--installation")["rows"] == 1
    assert record.verified()["rows"] == ROWS


def test_an_export_verifies_without_a_server(record: Record) -> None:
    file = record.exported()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]
    head = record.verified()["head"]
    shutil.rmtree(record.folder)
    assert record.verified(str(file), "--head", head)["head"] == head


def test_an_export_goes_to_standard_output(record: Record) -> None:
    assert record.run("export").out == record.exported().read_text()


def test_an_export_replaces_nothing(record: Record) -> None:
    file = record.exported()
    assert "is there already" in record.run("export", "-o", str(file)).error_line(2)


def test_a_long_record_is_read_to_its_end(record: Record) -> None:
    old = record.folder.parent / "more.json"
    old.write_text(json.dumps({f"more{number}": "x" for number in range(1000)}))
    of = ("--workspace", "default", "--data-dir", record.folder)
    assert record.runner.run("vault", "import", old, *of).code == 0
    assert record.verified()["rows"] == ROWS + 1000
    assert record.verified(str(record.exported()))["rows"] == ROWS + 1000


def test_a_changed_row_is_found(record: Record) -> None:
    record.change("UPDATE audit_rows SET name = 'other' WHERE seq = 3")
    assert record.fault() == (3, "it was changed, or one before it")


def test_a_row_that_is_gone_from_the_middle_is_found(record: Record) -> None:
    record.change("DELETE FROM audit_rows WHERE seq = 2")
    assert record.fault() == (2, "row 2 is not there")


def test_a_last_row_that_is_gone_is_found(record: Record) -> None:
    record.change("DELETE FROM audit_rows WHERE seq = 5")
    assert record.fault() == (ROWS, "rows 5 to 5 are gone")


def test_rows_that_are_swapped_are_found(record: Record) -> None:
    record.change(
        "UPDATE audit_rows SET seq = 99 WHERE seq = 2",
        "UPDATE audit_rows SET seq = 2 WHERE seq = 3",
        "UPDATE audit_rows SET seq = 3 WHERE seq = 99",
    )
    assert record.fault()[0] == 2


def test_a_noted_head_shows_that_the_end_was_cut_off_with_the_head(record: Record) -> None:
    noted = record.verified()["head"]
    record.change(
        "DELETE FROM audit_rows WHERE seq = 5",
        "UPDATE audit_heads SET (seq, hash) = (SELECT seq, hash FROM audit_rows WHERE seq = 4)",
    )
    assert record.verified()["rows"] == ROWS - 1
    assert record.fault("--head", noted)[0] == ROWS


def test_a_noted_head_that_belongs_to_another_row_is_found(record: Record) -> None:
    digits = record.verified()["head"].partition(":")[2]
    row, reason = record.fault("--head", f"2:{digits}")
    assert (row, "--head" in reason) == (2, True)


def test_an_earlier_head_is_enough(record: Record) -> None:
    second = json.loads(record.exported().read_text().splitlines()[1])
    assert record.verified("--head", f"2:{second['hash']}")["rows"] == ROWS


def test_an_invalid_head_is_refused(record: Record) -> None:
    for head in ("", "5", f"05:{'0' * 64}", f"5:{'A' * 64}", f"-5:{'a' * 64}"):
        assert "is no SEQ:HASH" in record.run("verify", f"--head={head}").error_line(2)


def edited(export: str, file: Path, edit: str) -> Path:
    lines = export.splitlines()
    match edit:
        case "changed":
            lines[2] = lines[2].replace("secret2", "secret9")
        case "removed":
            del lines[2]
        case "swapped":
            lines[2], lines[3] = lines[3], lines[2]
        case "no object":
            lines[2] = "[1]"
        case "nested":
            lines[2] = "[" * 100_000
        case _:
            lines[2] = "gone"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize(
    "edit", ["changed", "removed", "swapped", "damaged", "no object", "nested"]
)
def test_an_edited_export_is_found(
    runner: CommandRunner, export: str, tmp_path: Path, edit: str
) -> None:
    file = edited(export, tmp_path / "audit.jsonl", edit)
    assert Record(tmp_path / "none", runner).fault(str(file))[0] == 3


def test_a_cut_export_shows_with_a_noted_head_alone(record: Record) -> None:
    noted = record.verified()["head"]
    file = record.exported()
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert record.verified(str(file))["rows"] == ROWS - 1
    assert record.fault(str(file), "--head", noted)[0] == ROWS


def test_a_file_takes_no_account_option(record: Record) -> None:
    assert "leave them out" in record.run("verify", "a.jsonl", "--installation").error_line(2)


def test_a_missing_file_is_named(record: Record) -> None:
    assert record.run("verify", "gone.jsonl").error_line(2).startswith("gone.jsonl cannot be read")
