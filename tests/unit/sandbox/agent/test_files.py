"""Tools that read and write files."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.tools.files import MOST_BYTES, edit_file, read_file, write_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    return SimpleNamespace(deps=SimpleNamespace(workspace=tmp_path))


def test_a_file_is_written_with_its_folders_and_read(ctx: Any, tmp_path: Path) -> None:
    assert write_file(ctx, "a/b.txt", "é\n") == "3 bytes are written."
    assert read_file(ctx, "a/b.txt") == "é\n"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_file_keeps_its_mode_and_its_link(ctx: Any, tmp_path: Path) -> None:
    target = tmp_path / "run.sh"
    target.write_text("old")
    target.chmod(0o755)
    (tmp_path / "link").symlink_to(target)
    write_file(ctx, "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o755


def test_a_part_of_a_file_is_read(ctx: Any) -> None:
    write_file(ctx, "a", "".join(f"line {number}\n" for number in range(1, 11)))
    assert read_file(ctx, "a", 3, 2) == "line 3\nline 4\n\n[the file goes on: read from line 5]"
    assert read_file(ctx, "a", 10) == "line 10\n"
    assert read_file(ctx, "a", 11) == "(the file has 10 lines)"


def test_a_long_file_is_read_in_parts(ctx: Any) -> None:
    write_file(ctx, "a", "x" * 999 + "\n" + "y" * 10 * MOST_BYTES)
    shown = read_file(ctx, "a")
    assert len(shown) < MOST_BYTES
    assert "goes on" in shown


@pytest.mark.parametrize("data", [b"\0", b"\xff"])
def test_what_is_no_text_is_not_shown(ctx: Any, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ToolFailed, match="no text"):
        read_file(ctx, "a")


def test_what_would_wait_or_never_end_is_not_read(ctx: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("pipe", "no ordinary"), ("/dev/zero", "no ordinary"), (".", "folder")):
        with pytest.raises(ToolFailed, match=why):
            read_file(ctx, name)
    with pytest.raises(ToolFailed, match="no ordinary"):
        write_file(ctx, "pipe", "x")


@pytest.mark.parametrize("name", ["nothing", "nothing/at all", "a\0b"])
def test_what_the_system_refuses_is_told(ctx: Any, name: str) -> None:
    with pytest.raises(ToolFailed, match="system refuses"):
        read_file(ctx, name)


def write_x(ctx: Any, name: str) -> str:
    return write_file(ctx, name, "x")


def edit_a(ctx: Any, name: str) -> str:
    return edit_file(ctx, name, "a", "b")


@pytest.mark.parametrize("name", ["circle", "circle/a"])
def test_links_in_a_circle_are_told(ctx: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for tool in (read_file, write_x, edit_a):
        with pytest.raises(ToolFailed, match="system refuses"):
            tool(ctx, name)


def test_an_edit_makes_no_file_that_is_too_large(ctx: Any) -> None:
    write_file(ctx, "a", "o" * 1000)
    with pytest.raises(ToolFailed, match="more than 4194304 characters"):
        edit_file(ctx, "a", "o", "x" * 5000, everywhere=True)
    assert read_file(ctx, "a") == "o" * 1000


def test_one_place_is_replaced(ctx: Any) -> None:
    write_file(ctx, "a", "one two")
    assert edit_file(ctx, "a", "two", "three") == "One place is replaced."
    assert read_file(ctx, "a") == "one three"


@pytest.mark.parametrize(("old", "why"), [("four", "not hold"), ("", "not hold"), ("o", "3 times")])
def test_an_edit_that_fits_nowhere_or_too_often_changes_nothing(
    ctx: Any, old: str, why: str
) -> None:
    write_file(ctx, "a", "foo o")
    with pytest.raises(ToolFailed, match=why):
        edit_file(ctx, "a", old, "x")
    assert read_file(ctx, "a") == "foo o"
