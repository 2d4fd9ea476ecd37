"""Tests wait for what they expect, not for a time to pass, and assert no time of a real clock.

A test that sleeps until something ought to have happened fails on a busy machine, and one that
asserts how long something took fails on a slow one. `tests/support/waiting.py` waits with a
deadline; work is counted: calls, bytes, turns of a loop.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
FREE: Final = ("faults/", "support/waiting.py", "contract/clients/")
"""Programs of client libraries cannot import what waits."""
KILLS: Final = "kills.py"
"""Files named like this are free, too: kills come at any moment."""
VIRTUAL: Final = "batches.virtual_time import"
"""In a file with this, no time passes in a sleep."""
SLEEPS: Final = {"time.sleep", "asyncio.sleep", "sleep"}
CLOCKS: Final = {"monotonic", "perf_counter", "process_time", "thread_time"}
FOREVER: Final = 60
"""Seconds that no test waits for: what sleeps so long is cancelled or killed."""


class Finder(ast.NodeVisitor):
    """Finds the lines of a file that wait for a time, or assert one.

    These sleeps are none: `sleep(0)`, which lets others have their turn; one in a `while` loop,
    between two looks at what it waits for; one that never ends; and in a file that holds no tests,
    a stand-in that is as slow as it was told to be.
    """

    def __init__(self, *, holds_tests: bool) -> None:
        self.lines: list[int] = []
        self._holds_tests = holds_tests
        self._polls = False
        self._measured: set[str] = set()

    def visit_While(self, node: ast.While) -> None:
        self._inside(node, polls=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside(node, polls=False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._inside(node, polls=False)

    def _inside(self, node: ast.AST, *, polls: bool) -> None:
        before, self._polls = self._polls, polls
        self.generic_visit(node)
        self._polls = before

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._tells_time(node.value):
            self._measured |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        if not self._polls and self._tells_time(node.test):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) in SLEEPS and not self._polls and self._waits(node):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def _waits(self, call: ast.Call) -> bool:
        [seconds] = call.args
        if isinstance(seconds, ast.Constant) and isinstance(seconds.value, int | float):
            return 0 < seconds.value < FOREVER
        return self._holds_tests

    def _tells_time(self, value: ast.AST) -> bool:
        return any(
            (isinstance(each, ast.Name) and each.id in self._measured)
            or (
                isinstance(each, ast.Call)
                and ast.unparse(each.func).removeprefix("time.") in CLOCKS
            )
            for each in ast.walk(value)
        )


def lines_that_wait(text: str, *, holds_tests: bool = True) -> list[int]:
    finder = Finder(holds_tests=holds_tests)
    finder.visit(ast.parse(text))
    return finder.lines


def files() -> Iterator[tuple[str, Path]]:
    for file in sorted(TESTS.rglob("*.py")):
        name = file.relative_to(TESTS).as_posix()
        free = name.startswith(FREE) or name.endswith(KILLS)
        if not free and VIRTUAL not in file.read_text():
            yield name, file


def test_no_file_waits_for_a_time_or_asserts_one() -> None:
    found = {
        name: lines
        for name, file in files()
        if (lines := lines_that_wait(file.read_text(), holds_tests=file.stem.startswith("test_")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "await asyncio.sleep(0.01)",
        "time.sleep(SECONDS)",
        "for number in range(3):\n    time.sleep(1)",
        "while waits():\n    async def stub():\n        await asyncio.sleep(1)",
        "begun = time.monotonic()\nask()\nassert time.monotonic() - begun < 5",
        "begun = perf_counter()\ntook = read() - begun\nassert took < 5",
        "began = time.process_time()\nassert other() - began < 5",
    ],
)
def test_what_waits_for_a_time_or_asserts_one_is_found(text: str) -> None:
    assert lines_that_wait(text)


@pytest.mark.parametrize(
    "text",
    [
        "await asyncio.sleep(0)",
        "while not found():\n    await asyncio.sleep(0.01)",
        "time.sleep(600)",
        "ends = time.monotonic() + 5\nwhile not found():\n    assert time.monotonic() < ends",
    ],
)
def test_turns_pauses_between_looks_and_deadlines_are_allowed(text: str) -> None:
    assert lines_that_wait(text) == []


def test_a_stand_in_may_be_as_slow_as_it_is_told_to_be() -> None:
    assert lines_that_wait("await asyncio.sleep(step.seconds)", holds_tests=False) == []
    assert lines_that_wait("await asyncio.sleep(0.1)", holds_tests=False) == [1]
