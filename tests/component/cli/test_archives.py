"""Archives of interns, brought back by commands that need no server."""

import asyncio
import json
import os
import shutil
import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.clock import FakeClock
from tollhouse.apps.blobs import open_archives
from tollhouse.cli.commands.intern import intern_app
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.archives import exported
from tollhouse.interns.workspaces.archive_format import pack
from tollhouse.interns.workspaces.archive_store import ArchiveStore
from tollhouse.kernel.errors import StartError
from tollhouse.settings.loader import load

_ID = "283d7485-3786-4ce7-a204-22956e9a99c5"


class Kept:
    """What archives ask of an intern."""

    id, name, account_id, workspace_id = _ID, "ada", "account", "workspace"


@pytest.fixture
async def data(tmp_path: Path, clock: FakeClock) -> Path:
    """A data folder with the archive of an intern."""
    folder = tmp_path / "data"
    folder.mkdir()
    await store(folder, tmp_path / "files", "kept", clock)
    return folder


async def store(data: Path, files: Path, note: str, clock: FakeClock) -> None:
    """Archive a folder as an intern's, with a note in it."""
    (files / "notes").mkdir(parents=True, exist_ok=True)
    (files / "notes" / "today.txt").write_text(note)
    intern: Any = Kept()

    async def content() -> AsyncIterator[bytes]:
        for piece in pack(files):
            yield piece

    await replace(opened(data), clock=clock).store(intern, content())


def opened(data: Path) -> ArchiveStore:
    return open_archives(load(config=None, env={}, overrides={"data_dir": data}))


def run(data: Path, *args: str | Path) -> Result:
    words = ["archives", *map(str, args), "--data-dir", str(data)]
    return CliRunner().invoke(intern_app, words, catch_exceptions=True)


def test_archives_are_listed(data: Path) -> None:
    (found,) = json.loads(run(data, "list", "--json").stdout)
    assert (found["intern_id"], found["name"], found["workspace_id"]) == (_ID, "ada", "workspace")


def test_there_may_be_none(tmp_path: Path) -> None:
    assert run(tmp_path, "list", "--json").stdout == "[]\n"


@pytest.mark.parametrize("reference", [_ID, "ada"])
def test_one_becomes_a_folder_again(data: Path, tmp_path: Path, reference: str) -> None:
    assert run(data, "unpack", reference, tmp_path / "back").exit_code == 0
    assert (tmp_path / "back" / "notes" / "today.txt").read_text() == "kept"


@pytest.mark.parametrize("reference", [_ID, "ada"])
async def test_the_newest_is_taken_where_an_earlier_one_was_left(
    data: Path, clock: FakeClock, tmp_path: Path, reference: str
) -> None:
    archives = data / "blobs" / "interns" / _ID
    shutil.move(archives, tmp_path / "earlier")
    clock.advance(0.001)
    await store(data, tmp_path / "files", "newer", clock)
    shutil.copytree(tmp_path / "earlier", archives, dirs_exist_ok=True)
    unpacking = asyncio.to_thread(run, data, "unpack", reference, tmp_path / "back")
    assert (await unpacking).exit_code == 0
    assert (tmp_path / "back" / "notes" / "today.txt").read_text() == "newer"


def test_one_becomes_a_file_for_its_owner_alone(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "ada.tar.zst"
    assert run(data, "export", "ada", file).exit_code == 0
    assert file.read_bytes() == b"".join(pack(tmp_path / "files"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_one_goes_to_standard_output(data: Path, tmp_path: Path) -> None:
    assert run(data, "export", "ada", "-").stdout_bytes == b"".join(pack(tmp_path / "files"))


def test_a_reader_of_standard_output_that_has_enough_is_no_failure(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        assert asyncio.run(exported(opened(data), "ada", None, force=False)) == 0


def test_standard_output_that_is_full_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(CommandFailed, match="the output cannot be written"):
            asyncio.run(exported(opened(data), "ada", None, force=False))


def test_a_pipe_gets_one_and_stays_a_pipe(data: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        assert run(data, "export", "ada", pipe).exit_code == 0
        assert reader.read() == b"".join(pack(tmp_path / "files"))
    assert pipe.is_fifo()


def test_what_is_there_already_stays(data: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    assert isinstance(run(data, "export", "ada", tmp_path / "there").exception, StartError)
    assert isinstance(run(data, "unpack", "ada", tmp_path / "there").exception, StartError)
    assert (tmp_path / "there").read_text() == "mine"
    assert run(data, "export", "ada", tmp_path / "there", "--force").exit_code == 0


def test_one_that_is_not_there_is_said_to_be_missing(data: Path, tmp_path: Path) -> None:
    failed = run(data, "unpack", "bob", tmp_path / "back").exception
    assert isinstance(failed, CommandFailed)
    assert "there is no archive of bob" in str(failed)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("command", ["export", "unpack"])
def test_one_that_was_changed_is_not_taken_for_whole(
    data: Path, tmp_path: Path, command: str
) -> None:
    (piece,) = (data / "blobs").rglob("00000")
    shutil.rmtree(tmp_path / "files")
    (tmp_path / "files").mkdir()
    piece.write_bytes(b"".join(pack(tmp_path / "files")))
    failed = run(data, command, "ada", tmp_path / "back").exception
    assert isinstance(failed, CommandFailed)
    assert "damaged" in str(failed)
