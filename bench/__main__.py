"""`python -m bench`: measure, print, and write down if asked to."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import yaml

from bench import comparison, stages
from bench.endurance import NAME, Endurance
from bench.processes import BenchError
from bench.report import report_progress
from bench.servers import Tree, this_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.report import Report

_WORK: Final = Path(".cache") / "bench"
"""On the disk of the checkout: a memory file system would make durable writes too cheap."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="What the gateway costs beside nginx as a plain reverse proxy, in one table "
        "with the aims. Other options measure something else instead.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, about two minutes")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=comparison.PARTS,
        metavar="PART",
        help="parts of the table: " + ", ".join(comparison.PARTS),
    )
    parser.add_argument(
        "--repo", type=Path, metavar="PATH", help="another checkout, measured in the same rounds"
    )
    parser.add_argument(
        "--setting",
        action="append",
        type=_setting,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of this checkout's gateway, by its dotted name",
    )
    parser.add_argument(
        "--stages", action="store_true", help="where the time of a request goes, instead"
    )
    parser.add_argument(
        "--endurance", type=int, metavar="MINUTES", help="mixed traffic for so long instead"
    )
    parser.add_argument("--work-dir", type=Path, default=_WORK, help="where data folders are made")
    parser.add_argument("--write-results", action="store_true", help="renew bench/RESULTS.md")
    return parser


def _setting(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    return name, yaml.safe_load(value)


def _suite(folder: Path, options: argparse.Namespace) -> Sequence[Report]:
    """Measure what the options say; the first report is this checkout's."""
    quick: bool = options.quick
    tree = this_tree(dict(options.setting))
    if options.endurance:
        return comparison.measure(folder, [tree], [Endurance(options.endurance)], NAME)
    if options.stages:
        cut, dose = replace(tree, command=stages.COMMAND), stages.QUICK if quick else stages.FULL
        return comparison.measure(folder, [cut], [dose], stages.NAME)
    trees = [tree, *([Tree.at(options.repo.resolve(), {})] if options.repo else [])]
    dose = comparison.QUICK if quick else comparison.FULL
    scenarios = comparison.chosen(dose, options.only) if options.only else dose
    return comparison.measure(folder, trees, scenarios)


def _run(options: argparse.Namespace, folder: Path, command: str) -> None:
    report, *others = _suite(folder, options)
    print(f"\n{report.text()}", flush=True)
    for other in others:
        print(f"\n{report.beside(other)}", flush=True)
    if options.write_results:
        report.write(command)


def _stop(number: int, frame: object) -> NoReturn:
    """Turn SIGTERM into an exception: children are ended on the way out."""
    del frame
    sys.exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given)
    signal.signal(signal.SIGTERM, _stop)
    work: Path = options.work_dir
    work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=work)).resolve()
    try:
        _run(options, folder, f'make bench ARGS="{" ".join(given)}"')
    except BenchError as error:
        report_progress(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
