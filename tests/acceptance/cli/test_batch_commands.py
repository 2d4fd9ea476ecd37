"""`tollhouse batch` against a fake server; `test_batch` uses the real one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner
from tests.acceptance.cli.fake_batch_server import (
    ID,
    FakeBatchServer,
    PlannedAnswer,
    batch,
    result,
    run_batch_server,
)

HERE = f"/batches/{ID}"
ERROR = {"type": "api_error", "message": "No.", "param": None, "error_type": "server"}
FAILED = {"id": "r9", "custom_id": "c9", "response": None, "error": ERROR}
RESULTS = [result(0), result(1), FAILED]
WITHHELD = {"code": 402, "message": "Its charge is not covered: add credits to read its results."}


@pytest.fixture
def batches() -> Iterator[FakeBatchServer]:
    with run_batch_server() as batches:
        yield batches


@pytest.fixture
def run(runner: CommandRunner, batches: FakeBatchServer) -> Any:
    def run(*args: str | Path) -> CommandResult:
        return runner.run("batch", *args, env=batches.env)

    return run


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    each = [{"custom_id": f"c{n}", "body": {"messages": []}} for n in range(10)]
    file.write_text("".join(json.dumps(line) + "\n" for line in each))
    return file


def test_a_file_is_submitted(run: Any, batches: FakeBatchServer, lines: Path) -> None:
    batches.answer("POST", "/batches", PlannedAnswer(batch("validating"), 202))
    done = run("submit", lines, "--model", "acme/large", "--provider", "acme", "--no-fallbacks")
    assert done.code == 0, done
    assert done.err == ""
    assert {f"id\t{ID}", "status\tvalidating", "total\t10"} <= set(done.out.splitlines())
    [asked] = batches.asked
    assert (asked.method, asked.path) == ("POST", "/v1/batches")
    assert asked.headers["authorization"] == "Bearer sk-th-v1-somebody"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["idempotency-key"]
    assert json.loads(asked.body) == {
        "endpoint": "/v1/chat/completions",
        "model": "acme/large",
        "provider": {"only": ["acme"], "allow_fallbacks": False},
        "requests": [json.loads(line) for line in lines.read_text().splitlines()],
    }


def test_mistakes_are_reported_and_nothing_is_sent(
    run: Any, batches: FakeBatchServer, tmp_path: Path
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"custom_id": "a", "body": {}}\n\n{"body": {}}\nnonsense\n')
    done = run("submit", file, "--model", "m")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"{file}:3: custom_id is missing",
        f"{file}:4: not JSON: invalid character (byte 4)",
    ]
    assert "--endpoint" in run("submit", file, "--endpoint", "chat").error_line(2)
    assert "cannot be read" in run("submit", tmp_path / "none").error_line(2)
    assert "--idempotency-key" in run("submit", file, "--idempotency-key", "a b").error_line(2)
    assert batches.asked == []


def test_where_nobody_answers_the_command_can_be_repeated(
    run: Any, batches: FakeBatchServer, lines: Path
) -> None:
    refusal = {"error": {"code": 500, "message": "Internal server error."}}
    batches.answer(
        "POST", "/batches", PlannedAnswer(refusal, 500), PlannedAnswer(batch("validating"), 202)
    )
    said = run("submit", lines, "--model", "m").error_line(1)
    key = batches.asked[0].headers["idempotency-key"]
    assert f"repeat the command with --idempotency-key {key}" in said


def test_a_watched_batch_says_how_it_ended(run: Any, batches: FakeBatchServer, lines: Path) -> None:
    end = batch("completed", 9, 1, finalized_at=1_900_000_060, results=RESULTS)
    batches.answer("POST", "/batches", PlannedAnswer(batch("validating"), 202))
    batches.answer("GET", HERE, batch("in_progress", 4), batch("in_progress", 4), end)
    done = run("submit", lines, "--model", "m", "--watch", "--json")
    assert done.code == 3, done
    shown = json.loads(done.out)
    assert shown == {name: value for name, value in end.items() if name != "results"}
    assert done.err.splitlines() == [
        f"Submitted as {ID}.",
        f"{ID} in_progress: 4 completed, 0 failed of 10",
        f"{ID} completed: 9 completed, 1 failed of 10",
    ]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (batch("completed", 10, results=[]), 0),
        (batch("completed", 9, 1, results=[]), 3),
        (batch("failed", error={"message": "All are wrong."}), 4),
        (batch("expired", 1, 9, results=[]), 4),
        (batch("cancelled", 1, 9, results=[]), 4),
    ],
)
def test_the_status_of_a_batch_is_the_exit_code(
    run: Any, batches: FakeBatchServer, end: dict[str, Any], code: int
) -> None:
    batches.answer("GET", HERE, end)
    assert run("show", ID, "--watch").code == code
    assert run("show", ID).code == 0


def test_a_watch_survives_a_server_that_is_away(run: Any, batches: FakeBatchServer) -> None:
    gone = PlannedAnswer(lambda: [b'{"id": '], breaks_off=True)
    busy = PlannedAnswer({"error": {"code": 503, "message": "Shutting down."}}, 503)
    batches.answer("GET", HERE, gone, busy, batch("completed", 10, results=[]))
    done = run("show", ID, "--watch")
    assert done.code == 0, done
    assert "Trying again" in done.err.splitlines()[0]
    assert done.err.splitlines()[1] == "The server is back."


def test_a_batch_whose_results_are_withheld_is_shown(run: Any, batches: FakeBatchServer) -> None:
    batches.answer("GET", HERE, PlannedAnswer(batch("completed", 10, error=WITHHELD), 402))
    done = run("show", ID)
    assert (done.code, f"error\t{WITHHELD['message']}" in done.out.splitlines()) == (0, True)
    refused = run("results", ID).error_line(1)
    assert refused.startswith(WITHHELD["message"])
    assert "Nothing is lost" in refused


def test_results_are_lines(run: Any, batches: FakeBatchServer, tmp_path: Path) -> None:
    batches.answer("GET", HERE, batch("completed", 2, 1, results=RESULTS))
    done = run("results", ID)
    assert (done.code, done.err) == (0, "")
    assert [json.loads(line) for line in done.out.splitlines()] == RESULTS
    assert run("results", ID, "-o", "-", "--json").out == done.out
    out = tmp_path / "out.jsonl"
    assert run("results", ID, "-o", out).code == 0
    assert out.read_text() == done.out
    lines = run("results", ID, "--format", "openai").out.splitlines()
    openai = {**FAILED, "error": {"code": "server", "message": "No."}}
    assert [json.loads(line) for line in lines] == [*RESULTS[:2], openai]


def test_a_file_is_replaced_only_when_that_is_said(
    run: Any, batches: FakeBatchServer, tmp_path: Path
) -> None:
    batches.answer("GET", HERE, batch("completed", 3, results=RESULTS))
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert "--force" in run("results", ID, "-o", out).error_line(2)
    assert "is a folder" in run("results", ID, "-o", tmp_path).error_line(2)
    assert batches.asked == []
    link = tmp_path / "link"
    link.symlink_to(out)
    assert run("results", ID, "-o", link, "--force").code == 0
    assert link.is_symlink()
    assert len(out.read_text().splitlines()) == 3
    assert run("results", ID, "-o", "/dev/null").code == 0
    nowhere = run("results", ID, "-o", tmp_path / "none" / "out")
    assert "cannot be written" in nowhere.error_line(1)


def test_partial_results_are_not_written_to_the_file(
    run: Any, batches: FakeBatchServer, tmp_path: Path
) -> None:
    half = json.dumps(batch("completed", 10, results=RESULTS))[:-40].encode()
    batches.answer(
        "GET",
        HERE,
        PlannedAnswer(lambda: [half], breaks_off=True),
        PlannedAnswer(lambda: [half]),
        PlannedAnswer(lambda: [b"<html>"]),
    )
    out = tmp_path / "out.jsonl"
    for _ in range(3):
        run("results", ID, "-o", out).error_line(1)
        assert list(tmp_path.iterdir()) == []


def test_a_running_batch_gives_the_results_so_far(run: Any, batches: FakeBatchServer) -> None:
    lines = "".join(f"{json.dumps(each)}\n" for each in RESULTS).encode()
    batches.answer("GET", HERE, batch("in_progress"))
    batches.answer("GET", f"{HERE}/results", PlannedAnswer(lambda: [lines[:50], lines[50:]]))
    done = run("results", ID)
    assert (done.code, done.out.encode()) == (5, lines)


@pytest.mark.parametrize("half", [b'{"id": ', b'{"id": 1}\n{"id"', b"<html>\n"])
def test_partial_results_so_far_are_not_written_to_the_file(
    run: Any, batches: FakeBatchServer, tmp_path: Path, half: bytes
) -> None:
    batches.answer("GET", HERE, batch("in_progress"))
    batches.answer("GET", f"{HERE}/results", PlannedAnswer(lambda: [half]))
    run("results", ID, "-o", tmp_path / "out").error_line(1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seen", "code", "said"),
    [
        (batch("failed", error={"message": "All are wrong."}), 4, "All are wrong."),
        ({"data": []}, 1, "did not answer with a batch"),
    ],
)
def test_without_results_there_is_no_file(
    run: Any, batches: FakeBatchServer, tmp_path: Path, seen: object, code: int, said: str
) -> None:
    batches.answer("GET", HERE, seen)
    assert said in run("results", ID, "-o", tmp_path / "out").error_line(code)
    assert list(tmp_path.iterdir()) == []


def page(*ids: str, more: bool) -> dict[str, Any]:
    usage = {"cost": 0.25}
    data = [{**batch("completed", 9, 1), "id": each, "usage": usage} for each in ids]
    return {
        "object": "list",
        "data": data,
        "first_id": ids[0],
        "last_id": ids[-1],
        "has_more": more,
    }


def test_a_list_is_read_page_by_page(run: Any, batches: FakeBatchServer) -> None:
    batches.answer("GET", "/batches", page("b3", "b2", more=True), page("b1", more=False))
    done = run("list", "--all", "--status", "completed", "--status", "failed")
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["b3", "b2", "b1"]
    assert done.out.splitlines()[0].split("\t")[1:] == [
        *("completed", "acme/large", "/v1/chat/completions", "9", "1", "10", "0.25"),
        "2030-03-17T17:46:40Z",
    ]
    assert [each.path for each in batches.asked] == [
        "/v1/batches?limit=100&status=completed&status=failed",
        "/v1/batches?limit=100&after=b2&status=completed&status=failed",
    ]


def test_a_list_is_as_long_as_is_said(run: Any, batches: FakeBatchServer) -> None:
    batches.answer("GET", "/batches", page("b3", "b2", more=True), page("b1", more=True))
    found = run("list", "--limit", "3", "--created-after", "2030-01-01", "--json").json()
    assert [each["id"] for each in found] == ["b3", "b2", "b1"]
    assert [each.path for each in batches.asked] == [
        "/v1/batches?limit=3&created_after=2030-01-01",
        "/v1/batches?limit=1&after=b2&created_after=2030-01-01",
    ]
    assert run("list", "--limit", "0").code == 2
