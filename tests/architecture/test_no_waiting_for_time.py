"""Tests wait for what they expect, not for a time to pass, and assert no time of a real clock.

A test that sleeps until something ought to have happened fails on a busy machine, and one that
asserts how long something took fails on a slow one. `tests/support/waiting.py` waits with a
deadline; work is counted: calls, bytes, turns of a loop.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS: Final = Path(__file__).parents[1]
FREE: Final = ("faults/", "support/waiting.py", "contract/clients/")
"""Kills come at any moment; programs of client libraries cannot import what waits."""
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
        if not name.startswith(FREE):
            yield name, file


LEFT: Final[set[str]] = set()


def test_no_file_waits_for_a_time_or_asserts_one() -> None:
    found = {
        name
        for name, file in files()
        if lines_that_wait(file.read_text(), holds_tests=file.name.startswith("test_"))
    }
    assert found == LEFT
