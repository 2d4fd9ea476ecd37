"""Figures, verdicts, tables and the section of RESULTS.md."""

from datetime import date

import pytest

from bench import endurance, report, results
from bench.cases import CASES
from bench.endurance import Endurance
from bench.statistic import Spread, judge, ratios, scaled_limit, slope, spread
from bench.suite import Dose, Figures
from bench.target import Round

TIMES = {
    "messages": 1.05,
    "messages-on-chat": 1.25,
    "chat-on-messages": 1.75,
    "responses-on-chat": 1.5,
    "messages-stream": 1.1,
    "messages-on-chat-stream": 1.4,
    "chat-on-messages-stream": 3.0,
    "responses-on-chat-stream": 1.45,
}
"""What cases cost, times chat."""


def round_of(microseconds: float, pieces: float = 1.0, p50_ms: float = 1.5) -> Round:
    return Round(microseconds, 0.25, 0.8, 5_000.0, p50_ms, 4.0, pieces, 0.2, 3.0)


def measured(*, nginx: bool = True) -> Figures:
    figures = Figures(
        ready_fresh=[1.4, 1.2, 1.6],
        ready_existing=[0.8, 0.9, 0.7],
        ready_cpu=[0.6, 0.5, 0.7],
        idle_simulated=90_000_000,
        idle_provider=100_000_000,
        loaded=120_000_000,
        crowded=200_000_000,
        hang_ups=[1.0, 2.0, 12.5],
        money=[
            {"admit": 4.0, "book": 8.0, "total": 12.0},
            {"admit": 6.0, "book": 9.0, "total": 15.5},
            {"admit": 5.0, "book": 7.5, "total": 12.5},
        ],
        after_few=110_000_000,
        after_many=111_500_000,
        crowd={"gateway": [round_of(2_000.0)], "direct": [round_of(500.0)]},
        paced={"gateway": [round_of(100.0, p50_ms=2.1)], "direct": [round_of(10.0, p50_ms=0.4)]},
        sent=11_000,
        booked=11_000,
    )
    for cost in (100.0, 120.0, 110.0):
        figures.of("whole", "gateway").append(round_of(cost))
        figures.of("tls", "gateway").append(round_of(cost * 1.2))
        figures.of("stream", "gateway").append(round_of(cost * 20, pieces=49.9))
        for name, case in CASES.items():
            if case.prefix is None:
                chat = cost * 20 if case.stream else cost
                figures.of(name, "gateway").append(round_of(chat * TIMES[name]))
        if nginx:
            figures.of("whole", "nginx").append(round_of(cost / 10))
            figures.of("tls", "nginx").append(round_of(cost / 5))
            figures.of("stream", "nginx").append(round_of(cost * 4, pieces=50.0))
    return figures


def test_a_spread_is_median_and_bounds() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread([4.0]) == Spread(4.0, 4.0, 4.0)


def test_ratios_are_made_round_by_round() -> None:
    assert ratios([10.0, 40.0], [5.0, 10.0]) == [2.0, 4.0]
    assert ratios([10.0, 40.0], [0.0, 10.0]) == [4.0]


def test_rounds_that_do_not_pair_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_verdicts() -> None:
    assert judge("x", 79.6, 80.0, " us").verdict == "met"
    assert judge("x", 80.0, 80.0, " us").verdict == "met"
    assert judge("x", 100.0, 80.0, " us").verdict == "missed by 20 us (25 %)"
    assert judge("x", 2.5, 2.0, " s", 2).verdict == "missed by 0.50 s (25 %)"
    nothing = judge("x", None, 4.0, " x", 1)
    assert (nothing.measured, nothing.aim, nothing.verdict) == ("-", "<= 4.0 x", "not measured")
    assert judge("x", 5.0, None, " us").verdict == "not measured"


def test_a_limit_follows_the_yardstick_outside_its_bounds_only() -> None:
    assert scaled_limit(80.0, 12.0, 10.0, 14.0) == 80.0
    assert scaled_limit(80.0, 28.0, 10.0, 14.0) == pytest.approx(160.0)
    assert scaled_limit(80.0, 5.0, 10.0, 14.0) == pytest.approx(40.0)
    assert scaled_limit(80.0, None, 10.0, 14.0) is None


def test_a_slope_is_that_of_the_line_through_all_values() -> None:
    assert slope([1.0, 3.0, 5.0]) == pytest.approx(2.0)
    assert slope([5.0, 5.0, 5.0, 5.0]) == 0.0
    assert slope([5.0]) == 0.0


def test_memory_that_grows_after_the_first_sixth_is_a_slope_an_hour() -> None:
    warming = [90_000_000 + 1_000_000 * number for number in range(10)]
    steady = [100_000_000 + 5_000 * number for number in range(50)]
    done = Endurance(60.0, [*warming, *steady], requests=9, rude=2, booked=10)
    assert done.slope_mb_an_hour == pytest.approx(0.3)
    assert "+0.30 MB an hour" in endurance.report(done)


def test_tables_are_aligned() -> None:
    assert report.table([["a", "b"], ["long", "1"], ["c", "22"]]) == "a      b\nlong   1\nc     22"


def test_the_report_holds_every_figure() -> None:
    text = report.text(measured(), Dose())
    whole = next(line for line in text.splitlines() if line.startswith("non-streamed, gateway"))
    assert whole.split()[2:6] == ["110.0", "100.0", "120.0", "25"]
    lines = [line.split() for line in text.splitlines() if ", ratio" in line]
    assert lines == [
        ["non-streamed,", "ratio", "10.00", "10.00", "10.00"],
        ["non-streamed,", "TLS", "upstream,", "ratio", "6.00", "6.00", "6.00"],
        ["50-chunk", "stream,", "ratio", "5.00", "5.00", "5.00"],
    ]
    assert "missed by 30 us (38 %)" in text
    assert "missed by 1.0 x (25 %)" in text
    assert "missed by 22 us (20 %)" in text
    assert "missed by 0.70 ms (70 %)" in text
    assert "missed by 2.5 ms (25 %)" in text
    assert text.count(" met") == 8
    rows = [line.split() for line in text.splitlines()]
    assert ["added", "1.70", "0.00"] in rows
    assert ["3", "times", "2.00", "12.50", "12.50"] in rows
    assert ["gateway", "40.0", "0.20", "3.00", "5000"] in rows
    assert ["growth", "between", "the", "two", "1.5"] in rows
    assert "11000 requests were sent to the gateway and booked" in text


def test_other_formats_are_compared_with_chat_of_the_same_round() -> None:
    text = report.cpu_table(measured(nginx=False))
    found = {
        line.split(", times chat")[0]: line.split()[-3:]
        for line in text.splitlines()
        if ", times chat" in line
    }
    assert found == {CASES[name].title: [f"{times:.2f}"] * 3 for name, times in TIMES.items()}


def test_each_translation_has_an_aim_and_passing_through_has_none() -> None:
    found = {each.name: each.verdict for each in report.verdicts(measured(), Dose())}
    assert {name: verdict for name, verdict in found.items() if "times chat" in name} == {
        "messages on chat, times chat": "met",
        "chat on messages, times chat": "missed by 0.25 x (17 %)",
        "responses on chat, times chat": "met",
        "messages on chat, streamed, times chat": "met",
        "chat on messages, streamed, times chat": "missed by 1.50 x (100 %)",
        "responses on chat, streamed, times chat": "met",
    }


def test_without_nginx_there_is_no_ratio() -> None:
    text = report.text(measured(nginx=False), Dose())
    assert ["non-streamed,", "ratio", *"--------"] in [line.split() for line in text.splitlines()]
    assert text.count("not measured") == 3


def test_the_section_names_machine_versions_and_command() -> None:
    command = 'make bench ARGS="--write-results"'
    written = results.section(measured(), Dose(), "1.22.1", date(2030, 1, 2), command)
    assert "- Date: 2030-01-02" in written
    assert f"- Command: `{command}`" in written
    assert "cores, " in written
    assert "nginx 1.22.1" in written
    assert "| ready after start (slowest) | 1.60 s | <= 2.00 s | met |" in written


def test_a_section_is_replaced_and_the_rest_stays() -> None:
    document = f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n"
    once = results.replace_section(document, "new")
    assert once == f"before\n{results.BEGIN}\n\nnew\n\n{results.END}\nafter\n"
    assert results.replace_section(once, "new") == once


def test_a_document_without_the_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no section"):
        results.replace_section("nothing here", "new")


def test_the_results_file_has_the_marks() -> None:
    document = results.RESULTS.read_text(encoding="utf-8")
    for mark in (results.BEGIN, results.ENDURANCE_BEGIN):
        assert "new" in results.replace_section(document, "new", mark)
