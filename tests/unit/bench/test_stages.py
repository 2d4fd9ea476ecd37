"""Stages add up to the whole request, and a cut's reply is one that a load accepts."""

import msgspec
import pytest

from bench.cut_server import CUTS, fixed_reply
from bench.formats import FORMATS
from bench.report import Report
from bench.stages import summary


def test_a_stage_is_what_a_request_costs_more_up_to_its_end() -> None:
    report = Report("stages", "")
    for first, second in ((1.0, 3.5), (1.2, 3.0), (9.0, 9.9)):
        report.add("nginx, CPU", 20.0, "us")
        report.add("up to: gate", first, "x nginx")
        report.add("up to: parse", second, "x nginx")
    rows = [line.split() for line in summary(report).splitlines()]
    assert rows[1:] == [
        ["gate", "1.20", "17", "1.20"],
        ["parse", "2.30", "32", "3.50"],
        ["sum", "3.50", "49"],
    ]


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_answers_what_the_upstream_would_have_and_names_itself(cut: str) -> None:
    FORMATS["chat"].check(fixed_reply(cut), stream=False, priced=True)
    assert msgspec.json.decode(fixed_reply(cut))["id"] == f"cut: {cut}"
