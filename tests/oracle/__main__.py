"""`python -m tests.oracle`: does another version say the same of every request and reply?

    record FILE                 inputs of the tests, and more that are made of them
    answer FILE OUT             what a version says of them
    compare FILE --repo OLD     what this one says otherwise; exit status 1 if that is not decided
    show FILE NUMBER            one input, and its answer

docs/development/comparing-versions.md has the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from tests.oracle.checkouts import HERE, NoAnswer, answers
from tests.oracle.differences import Comparison, read_decisions
from tests.oracle.generation import generated
from tests.oracle.inputs import Inputs, read_lines, write_lines
from tests.oracle.report import as_json, text

T = TypeVar("T")
TESTS = (
    "tests/unit/inference/formats",
    *map(str, sorted(HERE.glob("tests/acceptance/test_wire_*.py"))),
)
SEED = 1
_ERRORS = Console(stderr=True)


def record(options: argparse.Namespace) -> int:
    """Run tests and write what they ask of the formats, with inputs that are made of these."""
    import pytest  # noqa: PLC0415 - the other commands need none of it

    from tests.oracle.outside_recorder import OutsideRecorder  # noqa: PLC0415 - the same
    from tests.oracle.recorder import Recorder  # noqa: PLC0415 - it wraps the classes of today

    inputs = Inputs()
    usual = ("-n0", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    plugins = [Recorder(inputs), OutsideRecorder(inputs)]
    pytest.main([*usual, *(options.tests or TESTS)], plugins=plugins)
    recorded = inputs.all()
    for each in generated(recorded, Random(SEED), options.generate):
        inputs.add(each)
    write_lines(options.file, inputs.lines())
    counts = Counter(each["op"] for each in inputs.all())
    _say(f"{len(inputs)} inputs, {len(recorded)} of them of tests; {inputs.left_out} too large")
    _say(", ".join(f"{count} of {op}" for op, count in counts.most_common()))
    return 0


def answer(options: argparse.Namespace) -> int:
    """Write a version's answers; report how they end, and what crashes."""
    lines = read_lines(options.file)
    given = [*_shown(answers(options.repo, lines), len(lines))]
    write_lines(options.out, given)
    said = [json.loads(each) for each in given]
    _say(", ".join(f"{n} {status}" for status, n in Counter(_ends(said)).most_common()))
    crashes: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for number, (line, each) in enumerate(zip(lines, said, strict=True), 1):
        for part in (each, each.get("without_content", {}), each.get("lost", {})):
            if part.get("status") == "crash":
                key = (part["kind"], part["at"], part["text"])
                crashes.setdefault(key, []).append((len(line), number))
    for (kind, place, message), found in sorted(crashes.items()):
        _say(f"{len(found)} crash: {kind} in {place}: {message}; such as input {min(found)[1]}")
    return 0


def _ends(said: Iterable[Any]) -> list[str]:
    return [each["status"] for each in said]


def compare(options: argparse.Namespace) -> int:
    """Report what this version says otherwise than another."""
    lines = read_lines(options.file)
    found = Comparison(read_decisions())
    # Another seed for each, so that what depends on the order of a set differs, too.
    both = zip(lines, answers(options.repo, lines, 1), answers(HERE, lines, 2), strict=True)
    for number, (line, before, after) in enumerate(_shown(both, len(lines)), 1):
        found.add(number, line, before, after)
    _say(json.dumps(as_json(found), indent=1) if options.json else text(found))
    return int(found.differing > 0)


def show(options: argparse.Namespace) -> int:
    """Print an input, and what versions say of it."""
    line = read_lines(options.file)[options.number - 1]
    _say(json.dumps(json.loads(line), indent=1))
    for repo in dict.fromkeys((options.repo, HERE)):
        _say(f"\n{repo}")
        _say(json.dumps(json.loads(next(answers(repo, [line]))), indent=1))
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _shown(values: Iterable[T], total: int) -> Iterable[T]:
    """Return values with a progress bar, if there is a terminal."""
    return track(values, "inputs", total, console=_ERRORS) if _ERRORS.is_terminal else values


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    for function in (record, answer, compare, show):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        command.set_defaults(run=function)
        command.add_argument("file", type=Path)
        if function is record:
            command.add_argument(
                "tests", nargs="*", help="paths of tests; without any those of the formats"
            )
            command.add_argument("--generate", type=int, default=40_000, metavar="COUNT")
        else:
            required = function is compare
            command.add_argument("--repo", type=_checkout, default=HERE, required=required)
        if function is answer:
            command.add_argument("out", type=Path)
        if function is compare:
            command.add_argument("--json", action="store_true")
        if function is show:
            command.add_argument("number", type=int)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except NoAnswer as error:
        sys.stderr.write(f"oracle: {error}\n")
        return 2


def _checkout(text: str) -> Path:
    return Path(text).resolve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
