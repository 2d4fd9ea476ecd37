"""`python -m bench`: measure, print, and write down if asked to."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bench import endurance, fairness, nginx, report, results
from bench.batches import report as batch_report
from bench.batches.figures import QUICK_BATCHES, BatchDose
from bench.batches.profiling import NAME, profile_batch
from bench.batches.suite import BatchSuite
from bench.cases import CASES
from bench.egress import profiling as egress_profiling
from bench.egress import report as egress_report
from bench.egress.figures import QUICK_EGRESS, EgressDose
from bench.egress.suite import EgressSuite
from bench.interns import report as intern_report
from bench.interns.figures import QUICK_INTERNS, InternDose
from bench.interns.suite import InternSuite, problem
from bench.processes import BenchError
from bench.profiling import profile
from bench.suite import QUICK, Dose, Suite, report_progress
from tollhouse.kernel.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

_WORK = Path(".cache") / "bench"
"""On the disk of the checkout: a memory file system would make durable writes too cheap."""

_PROFILED = (*CASES, NAME, egress_profiling.NAME)
_DOSE_OPTIONS = frozenset(("rounds", "whole", "stream", "concurrency", "chunk_interval_ms"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="CPU time of the gateway for a request, beside nginx as a plain reverse proxy; "
        "what batches cost; what the egress proxy costs, beside mitmproxy; what interns cost; how "
        "fair it is to short requests beside large ones.",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: figures mean little")
    parser.add_argument("--rounds", type=int, help="rounds of each server and case")
    parser.add_argument("--whole", type=int, help="non-streamed requests of a round")
    parser.add_argument("--stream", type=int, help="streamed requests of a round")
    parser.add_argument("--concurrency", type=int, help="connections of the load")
    parser.add_argument("--chunk-interval-ms", type=float, help="between two chunks of a stream")
    parser.add_argument("--no-nginx", action="store_true", help="measure the gateway alone")
    parser.add_argument("--batches", action="store_true", help="measure batches alone")
    parser.add_argument("--egress", action="store_true", help="measure the egress proxy alone")
    parser.add_argument("--interns", action="store_true", help="measure interns alone")
    parser.add_argument("--fairness", action="store_true", help="measure fairness alone")
    parser.add_argument("--work-dir", type=Path, default=_WORK, help="where data folders are made")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--write-results", action="store_true", help="renew bench/RESULTS.md")
    parser.add_argument(
        "--endurance", type=int, metavar="MINUTES", help="only mixed traffic for so long"
    )
    parser.add_argument("--profile", choices=_PROFILED, help="only run py-spy on it")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="a flame graph of --profile")
    parser.add_argument("--native", action="store_true", help="C frames in --profile")
    return parser


def _dose(options: argparse.Namespace) -> Dose:
    given: dict[str, Any] = {
        name: value
        for name, value in vars(options).items()
        if name in _DOSE_OPTIONS and value is not None
    }
    return replace(QUICK if options.quick else Dose(), **given)


def _repeatable(options: argparse.Namespace) -> str:
    """Return the arguments that matter to the figures; folders and files of one run do not."""
    words = ["--batches"] * options.batches + ["--egress"] * options.egress
    words += ["--interns"] * options.interns + ["--fairness"] * options.fairness
    words += ["--write-results"] + ["--quick"] * options.quick + ["--no-nginx"] * options.no_nginx
    for name, value in vars(options).items():
        if name in _DOSE_OPTIONS and value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return " ".join(words)


def _measure(options: argparse.Namespace, folder: Path) -> None:
    dose = _dose(options)
    if options.profile == NAME:
        print(profile_batch(folder, svg=options.svg, native=options.native))
        return
    if options.profile == egress_profiling.NAME:
        print(egress_profiling.profile_egress(folder, svg=options.svg, native=options.native))
        return
    if options.profile:
        print(profile(folder, dose, options.profile, svg=options.svg, native=options.native))
        return
    if options.endurance:
        _endure(options, folder)
        return
    if options.fairness:
        _measure_fairness(options, folder)
        return
    everything = not (options.batches or options.egress or options.interns)
    measured = _measure_requests(options, folder, dose) if everything else {}
    if everything or options.batches:
        measured["batches"] = _measure_batches(options, folder)
    if everything or options.egress:
        measured["egress"] = _measure_egress(options, folder)
    if everything or options.interns:
        measured["interns"] = _measure_interns(options, folder)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


def _measure_fairness(options: argparse.Namespace, folder: Path) -> None:
    text = fairness.report(fairness.measure(folder, 2.0 if options.quick else 20.0))
    print(text, end="")
    if options.write_results:
        written = results.fairness_section(text, _today(), _command(options))
        _write(written, results.FAIRNESS_BEGIN)


def _measure_requests(options: argparse.Namespace, folder: Path, dose: Dose) -> dict[str, Any]:
    """Measure requests, print what they cost, and return it for a file."""
    program = None if options.no_nginx else nginx.find()
    if program is None and not options.no_nginx:
        report_progress(nginx.MISSING)
    version = None if program is None else nginx.version(program)
    figures = Suite(folder, dose, program).run()
    print(report.text(figures, dose), end="")
    if program is None:
        print(f"\n{nginx.MISSING}" if not options.no_nginx else "\nwithout nginx, as asked for")
    if options.write_results:
        written = results.section(figures, dose, version, _today(), _command(options))
        _write(written, results.BEGIN)
    return results.document(figures, dose, version)


def _measure_batches(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure batches, print what they cost, and return it for a file."""
    dose = QUICK_BATCHES if options.quick else BatchDose()
    figures = BatchSuite(folder, dose).run()
    print(f"\n{batch_report.text(figures, dose)}", end="")
    if options.write_results:
        written = results.batches_section(figures, dose, _today(), _command(options))
        _write(written, results.BATCHES_BEGIN)
    return results.batches_document(figures, dose)


def _measure_egress(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the egress proxy, print what it costs, and return it for a file."""
    dose = QUICK_EGRESS if options.quick else EgressDose()
    figures = EgressSuite(folder, dose).run()
    print(f"\n{egress_report.text(figures, dose)}", end="")
    if options.write_results:
        written = results.egress_section(figures, dose, _today(), _command(options))
        _write(written, results.EGRESS_BEGIN)
    return results.egress_document(figures, dose)


def _measure_interns(options: argparse.Namespace, folder: Path) -> dict[str, Any] | None:
    """Measure interns, print what they cost, and return it for a file.

    Returns:
        None where the machine makes no sandboxes, and nobody asked for interns by name.

    Raises:
        BenchError: It makes none, and somebody did.
    """
    found = problem(folder)
    if found is not None:
        message = f"interns are not measured: {found}"
        if options.interns:
            raise BenchError(message)
        print(f"\n{message}")
        return None
    dose = QUICK_INTERNS if options.quick else InternDose()
    figures = InternSuite(folder, dose).run()
    print(f"\n{intern_report.text(figures, dose)}", end="")
    if options.write_results:
        written = results.interns_section(figures, dose, _today(), _command(options))
        _write(written, results.INTERNS_BEGIN)
    return results.interns_document(figures, dose)


def _command(options: argparse.Namespace) -> str:
    return f'make bench ARGS="{_repeatable(options)}"'


def _today() -> date:
    return SystemClock().now().date()


def _endure(options: argparse.Namespace, folder: Path) -> None:
    text = endurance.report(endurance.endure(folder, options.endurance))
    print(text)
    if options.write_results:
        command = f"make endurance MINUTES={options.endurance} ARGS=--write-results"
        _write(results.endurance_section(text, _today(), command), results.ENDURANCE_BEGIN)


def _write(section: str, mark: str) -> None:
    document = results.RESULTS.read_text(encoding="utf-8")
    written = results.replace_section(document, section, mark)
    results.RESULTS.write_text(written, encoding="utf-8")
    report_progress(f"wrote {results.RESULTS.name}")


def _stop(number: int, frame: object) -> NoReturn:
    """Turn SIGTERM into an exception: children are ended on the way out."""
    del frame
    sys.exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    work: Path = options.work_dir
    work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=work)).resolve()
    try:
        _measure(options, folder)
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
