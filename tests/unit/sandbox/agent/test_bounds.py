"""What a run may use, and what the model gets to see of what is long."""

from __future__ import annotations

import pytest

from tollhouse.sandbox.agent.tools.context import Excerpt
from tollhouse.sandbox.agent.tools.toolset import LONGEST_TITLE, title_of
from tollhouse.sandbox.agent.usage import (
    MOST_OUTPUT_BYTES,
    MOST_REQUESTS,
    RunFailed,
    RunUsage,
    usage_before,
)


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
        "usage": {
            "input_tokens": 10,
            "cached_tokens": 0,
            "output_tokens": 2,
            "cost": "1.000005",
        },
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


@pytest.mark.parametrize(
    ("tool", "arguments", "title"),
    [
        ("shell", '{"command": "ls  -l\\n\\tx"}', "Run ls -l x"),
        ("shell", {"command": "ls"}, "Run ls"),
        ("http_request", '{"url": "http://a/"}', "GET http://a/"),
        ("http_request", '{"url": "http://a/", "method": "PUT"}', "PUT http://a/"),
        ("shell", "{", "Run …"),
        ("shell", "[]", "Run …"),
        ("shell", None, "Run …"),
        ("call_mcp_tool", '{"server": "s", "tool": "t"}', "s: t"),
        ("unknown", "{}", "unknown"),
    ],
)
def test_a_call_has_a_title(tool: str, arguments: object, title: str) -> None:
    assert title_of(tool, arguments) == title  # type: ignore[arg-type]


def test_a_title_is_one_short_line() -> None:
    title = title_of("shell", {"command": "x\n" * 1000})
    assert len(title) == LONGEST_TITLE
    assert "\n" not in title
