"""What an agent's tools do, and what the model gets to see of it."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed

from tests.support.tables import tables
from tollhouse.sandbox.agent.tools.context import Excerpt
from tollhouse.sandbox.agent.tools.files import MOST_BYTES, edit_file, read_file, write_file
from tollhouse.sandbox.agent.tools.mcp_servers import read_configs
from tollhouse.sandbox.agent.tools.toolset import LONGEST_TITLE, title_of
from tollhouse.sandbox.agent.usage import (
    MOST_OUTPUT_BYTES,
    MOST_REQUESTS,
    RunFailed,
    RunUsage,
    usage_before,
)

CASES = tables(__file__)


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


# What a run may use, and what the model gets to see of what is long


def test_a_run_asks_so_often_and_no_more() -> None:
    usage = RunUsage()
    for _ in range(MOST_REQUESTS):
        usage.count_request()
    with pytest.raises(RunFailed, match=f"{MOST_REQUESTS} times"):
        usage.count_request()


def test_output_counts_in_bytes() -> None:
    usage = RunUsage()
    usage.count_output("é" * (MOST_OUTPUT_BYTES // 2))
    with pytest.raises(RunFailed):
        usage.count_output("x")


def test_a_run_that_goes_on_counts_on() -> None:
    usage = RunUsage(requests=3, output_bytes=5, input_tokens=10, output_tokens=2)
    usage.add_cost(5e-06)
    again = usage_before(usage.as_message())
    again.add_cost(1)
    assert again.as_message() == {
        "requests": 3,
        "output_bytes": 5,
        "usage": {"input_tokens": 10, "cached_tokens": 0, "output_tokens": 2, "cost": "1.000005"},
    }


def test_a_run_that_never_asked_has_no_usage() -> None:
    assert usage_before({}).as_message()["usage"] is None


@pytest.mark.parametrize("told", [None, "1", True, float("nan"), float("inf"), {}], ids=str)
def test_what_is_no_number_is_no_cost(told: object) -> None:
    usage = RunUsage(requests=1)
    usage.add_cost(told)
    assert usage.as_message()["usage"]["cost"] is None


def test_a_cost_of_nothing_is_one() -> None:
    usage = RunUsage(requests=1)
    usage.add_cost(0)
    assert usage.as_message()["usage"]["cost"] == "0"


def test_of_what_is_long_the_beginning_and_the_end_stay() -> None:
    excerpt = Excerpt(4)
    excerpt.add(b"abcd")
    for _ in range(1000):
        excerpt.add(b"x" * 10)
    excerpt.add(b"wxyz")
    assert excerpt.text() == "abcd\n[... 10000 bytes are left out here ...]\nwxyz"
    assert excerpt.size == 10_008


def test_what_is_no_text_is_shown_as_one() -> None:
    excerpt = Excerpt()
    excerpt.add(b"a\xff\0")
    assert excerpt.text() == "a\ufffd\ufffd"


@pytest.mark.parametrize(("tool", "arguments", "title"), CASES["a_call_has_a_title"])
def test_a_call_has_a_title(tool: str, arguments: object, title: str) -> None:
    assert title_of(tool, arguments) == title  # type: ignore[arg-type]


def test_a_title_is_one_short_line() -> None:
    title = title_of("shell", {"command": "x\n" * 1000})
    assert len(title) == LONGEST_TITLE
    assert "\n" not in title


# The file that names MCP servers


def read(**servers: object) -> dict[str, object]:
    return dict(read_configs(json.dumps({"mcpServers": servers}).encode()))


def test_servers_are_programs_or_addresses() -> None:
    found = read_configs(
        json.dumps(
            {
                "mcpServers": {
                    "files": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}},
                    "issues": {"type": "http", "url": "http://a/", "headers": {"B": "c"}},
                    "older": {"type": "sse", "url": "http://a/"},
                },
                "other": 1,
            }
        ).encode()
    )
    assert found["files"].where == "npx -y x"
    assert found["files"].environment == {"A": "b"}
    assert found["issues"].where == "http://a/"
    assert found["issues"].headers == {"B": "c"}
    assert [each.is_sse for each in found.values()] == [False, False, True]
    assert len({each.digest for each in found.values()}) == 3


def test_another_command_is_another_server() -> None:
    one, two = (read(files={"command": "a", "env": {"A": text}}) for text in "bc")
    assert one != two
    assert one["files"].digest != two["files"].digest  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"mcpServers": []}',
        '{"mcpServers": {"a": {}}}',
        '{"mcpServers": {"a": {"command": 5}}}',
        '{"mcpServers": {"a": {"command": "b\\u0000"}}}',
        '{"mcpServers": {"a": {"command": "b", "args": "c"}, "b": 5}}',
        '{"mcpServers": {"a": {"command": "b", "env": []}}}',
        '{"mcpServers": {"a": {"url": 5}}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:60] or "nothing",
)
def test_a_file_that_is_none_is_an_error_to_the_model(text: str) -> None:
    with pytest.raises(ToolFailed, match="cannot be understood"):
        read_configs(text.encode())


def test_secrets_of_servers_are_not_shown() -> None:
    shown = repr(read(a={"url": "http://a/", "headers": {"A": "canary"}}))
    assert "canary" not in shown
