"""Figures, aims, tables, profiles, and the sections of RESULTS.md."""

import re
from pathlib import Path

import pytest

from bench import comparison, endurance, report, stages
from bench.profiling import parse, summarise
from bench.report import Report, percentile, replace_section, slope

NAMES = [each.NAME for each in (comparison, stages, endurance)]


def measured() -> Report:
    found = Report("aims", "5 of each")
    for ours, theirs in ((100.0, 10.0), (300.0, 20.0), (110.0, 10.0)):
        found.add("chat, gateway", ours, "us", aim=80.0)
        found.add("chat, nginx", theirs, "us", aim=10.0)
        found.add("chat, other", ours / 2, "us")
    return found


def row_of(text: str, name: str) -> list[str]:
    """Return the cells behind a row's name."""
    return next(line for line in text.splitlines() if line.startswith(name))[len(name) :].split()


def test_a_figure_is_printed_with_its_median_its_bounds_and_its_aim() -> None:
    text = measured().text()
    cells = ["110", "100", "300", "us", "3", "<=", "80.0", "missed", "by", "30.0", "(38", "%)"]
    assert row_of(text, "chat, gateway") == cells
    assert row_of(text, "chat, nginx")[-1] == "met"


def test_figures_without_an_aim_come_after_those_that_have_one() -> None:
    aims, others = measured().text().split("\n\n")
    assert row_of(aims, "chat, nginx")
    assert row_of(others, "chat, other") == ["55.0", "50.0", "150", "us", "3"]


def test_a_run_is_shown_beside_another_one_with_ratios_round_by_round() -> None:
    other = Report("aims", "", tree="other")
    for value in (50.0, 100.0, 100.0):
        other.add("chat, gateway", value, "us")
    table = measured().beside(other)
    cells = ["110", "100", "us", "2.00", "1.10", "3.00"]
    assert row_of(table, "chat, gateway")[:6] == cells
    assert "chat, nginx" not in table


def test_a_document_has_every_value() -> None:
    document = measured().document()
    assert document["figures"]["chat, nginx"]["values"] == [10.0, 20.0, 10.0]
    assert document["versions"]["tollhouse"]


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 50) == 51.0
    assert percentile(values, 99) == 100.0
    assert percentile([], 50) == 0.0


def test_a_slope_is_that_of_the_line_through_all_values() -> None:
    assert slope([1.0, 3.0, 5.0]) == pytest.approx(2.0)
    assert slope([7.0]) == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_each_suite_has_a_section_of_its_own(name: str) -> None:
    document = report.RESULTS.read_text(encoding="utf-8")
    renewed = replace_section(document, name, "new figures")
    assert "new figures" in renewed
    others = re.compile(r"<!-- (\S+); begin -->\n(.*?)<!-- end -->", re.DOTALL)
    before, after = dict(others.findall(document)), dict(others.findall(renewed))
    assert {key: text for key, text in before.items() if key != name} == {
        key: text for key, text in after.items() if key != name
    }


def test_a_section_tells_date_command_machine_and_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("# a\n<!-- aims; begin -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(report, "RESULTS", path)
    measured().write('make bench ARGS="--quick --write-results"')
    text = path.read_text()
    assert "old" not in text
    for told in (
        "- Date: 20",
        'ARGS="--quick',
        "- Machine: ",
        "- Load: 5 of each",
        "chat, nginx",
    ):
        assert told in text


def test_a_document_without_the_section_is_refused() -> None:
    with pytest.raises(ValueError, match="no section"):
        replace_section("# Results", "aims", "x")


def test_a_profile_is_summed_up_by_function() -> None:
    main = "thread (0x1): MainThread;Runner.run (asyncio/runners.py:1)"
    lines = [
        f"{main};tell (x.py:1);read (a/b/c.py:5) 6",
        f"{main};tell (x.py:7);read (a/b/c.py:9) 2",
        f"{main} 2",
        "thread (0x2): settler_0;work (c/d/sqlite.py:3) 7",
        "thread (0x2): settler_0;_worker (concurrent/futures/thread.py:81) 1000",
        "not a stack",
    ]
    found = summarise(parse(lines), main=200.0, others=50.0)
    assert found.threads == pytest.approx({"MainThread": 200.0, "settler_0": 50.0})
    assert found.own == pytest.approx(
        {
            "read (b/c.py)": 160.0,
            "Runner.run (asyncio/runners.py)": 40.0,
            "work (d/sqlite.py)": 50.0,
        }
    )
    assert found.inclusive["tell (x.py)"] == pytest.approx(160.0)
    assert row_of(found.text(), "read (b/c.py)") == ["160.0"]
