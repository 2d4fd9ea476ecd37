"""What is sent through the egress proxy, and what is said of it."""

import asyncio
from datetime import date
from pathlib import Path

import pytest

from bench import results
from bench.egress import mitmproxy, report
from bench.egress.client import Client, Route, UnexpectedResponse, body_request, request
from bench.egress.figures import (
    CASES,
    DIRECT,
    MITMPROXY,
    Body,
    EgressDose,
    EgressFigures,
    Memory,
    NewHosts,
    Requests,
)
from bench.egress.hosts import BOUND, PLACEHOLDER, SHOWN, fresh
from tollhouse.vault.egress.conversation import request_in
from tollhouse.vault.egress.heads import HeadReader
from tollhouse.vault.egress.injection import names_in

MB = 1_000_000
DOSE = EgressDose()
STRAIGHT_WAY = Route(8443, "ca.pem")
THROUGH = Route(8443, "ca.pem", socket="proxy.sock", password="pw")


def cost(proxy: float) -> Requests:
    return Requests(proxy, 80.0, 50.0, 2_000.0, 0.5, 1.5)


def measured(version: str | None = "11.0.2") -> EgressFigures:
    costs = {DIRECT: 0.0, MITMPROXY: 1_300.0}
    return EgressFigures(
        requests={
            name: [cost(costs.get(case.through, 260.0)), cost(costs.get(case.through, 240.0))]
            for name, case in CASES.items()
            if version or case.through != MITMPROXY
        },
        hosts=[NewHosts(4.0, 0.5, 16.0, 30.0)],
        bodies={"up, unread": [Body(0.1, 0.2, 0.5, 80 * MB, 3 * MB)]},
        memory=Memory(60 * MB, 65 * MB, 66 * MB, 210 * MB, None if version is None else 90 * MB),
        mitmproxy=version,
    )


def row_of(text: str, name: str) -> list[str]:
    """Return the cells behind a row's name."""
    return next(line for line in text.splitlines() if line.startswith(name))[len(name) :].split()


@pytest.mark.parametrize(
    "sent",
    [
        request(THROUGH, BOUND, secret=True),
        body_request(THROUGH, BOUND, 0, up=True, secret=True),
        body_request(THROUGH, BOUND, 7, up=False, secret=True),
    ],
)
def test_a_request_is_one_that_the_proxy_takes(sent: bytes) -> None:
    heads = HeadReader(sent)
    head = heads.take()
    assert head is not None
    _, asked = request_in(head, heads)
    assert names_in(list(asked.headers)) == ["token"]


def test_a_direct_request_has_the_value_itself() -> None:
    assert SHOWN in request(STRAIGHT_WAY, BOUND, secret=True)
    assert PLACEHOLDER in request(THROUGH, BOUND, secret=True)
    assert b"Authorization" not in request(THROUGH, BOUND, secret=False)


def test_every_new_host_is_different() -> None:
    assert len({fresh(number) for number in range(500)}) == 500


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "403"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", "cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", "2 bytes in place of 1"),
    ],
)
async def test_a_wrong_answer_ends_the_load(answer: bytes, said: str) -> None:
    with pytest.raises(UnexpectedResponse, match=said):
        await answered(answer)


async def test_a_whole_answer_is_counted() -> None:
    assert await answered(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd") == 4


class Closed(asyncio.WriteTransport):
    """A transport that nothing is written to."""

    def is_closing(self) -> bool:
        return True


async def answered(data: bytes) -> int:
    """Return what a client says of an answer."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    protocol = asyncio.StreamReaderProtocol(reader)
    writer = asyncio.StreamWriter(Closed(), protocol, reader, asyncio.get_running_loop())
    return await Client(reader, writer).answer()


def test_requests_are_reported_by_process() -> None:
    text = report.request_table(measured())
    cells = ["250", "240", "260", "80", "50", "2000", "0.50", "1.50"]
    assert row_of(text, "with one secret, 1 at once") == cells
    assert row_of(text, "straight to the host, 1 at once")[:5] == ["-", "-", "-", "-", "50"]
    assert row_of(text, "mitmproxy, with one secret, 1 at once")[3] == "-"


def test_ratios_are_over_the_bare_loop_and_over_ours() -> None:
    text = report.ratio_table(measured())
    assert row_of(text, "with one secret, 32 at once, over the host's own")[0] == "5.00"
    assert row_of(text, "mitmproxy, with one secret, 32 at once, over ours")[0] == "5.21"


def test_bodies_are_reported_with_their_speed_and_memory() -> None:
    cells = ["0.20", "0.20", "0.20", "0.10", "0.50", "128", "80", "3.0"]
    assert row_of(report.body_table(measured(), DOSE), "up, unread") == cells


def test_without_mitmproxy_the_report_says_how_to_install_it() -> None:
    text = report.text(measured(None), DOSE)
    assert mitmproxy.MISSING in text
    assert "after its requests" not in text
    assert mitmproxy.MISSING not in report.text(measured(), DOSE)
    assert row_of(report.memory_table(measured(), DOSE), "mitmproxy, after its requests") == [
        "90.0"
    ]


def test_a_program_that_is_not_there_has_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mitmproxy, "PROGRAM", tmp_path / "mitmdump")
    assert mitmproxy.version() is None


def test_aims_are_of_requests_new_hosts_and_tunnels() -> None:
    found = {each.name: (each.measured, each.verdict) for each in report.verdicts(measured(), DOSE)}
    assert found == {
        "request without a placeholder, 1 at once": ("250 us", "met"),
        "request without a placeholder, 32 at once": ("250 us", "met"),
        "request with one secret, 1 at once": ("250 us", "met"),
        "request with one secret, 32 at once": ("250 us", "met"),
        "new host, CPU": ("4.0 ms", "met"),
        "new host, by the clock": ("16.0 ms", "missed by 1.0 ms (7 %)"),
        "memory with 1000 tunnels": ("210 MB", "missed by 10 MB (5 %)"),
    }


def test_the_section_of_the_egress_proxy_has_a_place_of_its_own() -> None:
    command = 'make bench ARGS="--egress --write-results"'
    written = results.egress_section(measured(), DOSE, date(2030, 1, 2), command)
    assert "- Date: 2030-01-02" in written
    assert "mitmproxy 11.0.2" in written
    assert "mitmproxy not installed" in results.egress_section(
        measured(None), DOSE, date(2030, 1, 2), command
    )
    assert "| memory with 1000 tunnels | 210 MB | <= 200 MB |" in written
    document = results.RESULTS.read_text(encoding="utf-8")
    renewed = results.replace_section(document, written, results.EGRESS_BEGIN)
    before, _, rest = document.partition(results.EGRESS_BEGIN)
    assert renewed.startswith(before)
    assert renewed.endswith(rest.partition(results.END)[2])
    assert results.egress_document(measured(), DOSE)["aims"]
