"""`tollhouse batch` as a process of its own: on a terminal, with Ctrl-C, with a large file."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner, tollhouse
from tests.acceptance.cli.fake_batch_server import (
    ID,
    FakeBatchServer,
    PlannedAnswer,
    batch,
    large_results,
    run_batch_server,
)
from tests.support.forked import forking_program
from tests.support.server_process import TOLLHOUSE, clean_environment, restore_sigint
from tests.support.terminal import Terminal

HERE = f"/batches/{ID}"
SECONDS = 60
MEGABYTES = 1024  # what ru_maxrss counts in is a kilobyte
MOST_MEMORY = 120 * MEGABYTES
LINES = 50_000


@contextmanager
def on_terminal(batches: FakeBatchServer, *args: str) -> Iterator[Terminal]:
    terminal = Terminal(("batch", *args), batches.env)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def batches() -> Iterator[FakeBatchServer]:
    with run_batch_server() as batches:
        yield batches


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text('{"custom_id": "a", "body": {"model": "acme/large"}}\n')
    return file


def test_ctrl_c_leaves_a_batch_running_and_says_how_to_come_back(batches: FakeBatchServer) -> None:
    batches.answer("GET", HERE, batch("in_progress", 4, 1))
    with on_terminal(batches, "show", ID, "--watch") as terminal:
        terminal.read_until("5/10")
        assert "1 failed" in terminal.text
        terminal.type("\x03")
        assert terminal.end() == 130
        assert f"The batch goes on. Come back with: tollhouse batch show {ID} --watch" in (
            terminal.text
        )
        assert "Traceback" not in terminal.text
    assert {each.method for each in batches.asked} == {"GET"}


def test_ctrl_c_leaves_a_batch_running_in_a_pipe_too(batches: FakeBatchServer) -> None:
    batches.answer("GET", HERE, batch("in_progress"))
    process = subprocess.Popen(
        [forking_program(), "batch", "show", ID, "--watch", "--json"],
        env=clean_environment(batches.env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_sigint,  # noqa: PLW1509 - no thread here holds a lock
    )
    with process:
        assert process.stderr is not None
        assert "in_progress" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("The batch goes on.")


def test_ctrl_c_while_a_batch_is_submitted_leaves_a_way_to_repeat_it(
    batches: FakeBatchServer, lines: Path
) -> None:
    never = threading.Event()
    batches.answer("POST", "/batches", PlannedAnswer(batch("validating"), 202, after=never))
    with on_terminal(batches, "submit", str(lines)) as terminal:
        terminal.read_until("checking")
        terminal.type("\x03")
        assert terminal.end() == 130
        never.set()
        assert "--idempotency-key" in terminal.text
        assert batches.asked[0].headers["idempotency-key"] in terminal.text.replace("\r\n", "")


def test_a_terminal_shows_bars_and_the_way_on(batches: FakeBatchServer, lines: Path) -> None:
    batches.answer("POST", "/batches", PlannedAnswer(batch("validating"), 202))
    with on_terminal(batches, "submit", str(lines)) as terminal:
        assert terminal.end() == 0
    assert "sending" in terminal.text
    assert f"tollhouse batch show {ID} --watch" in terminal.text
    assert f"tollhouse batch results {ID} -o results.jsonl" in terminal.text


def test_a_watch_on_a_terminal_ends_with_the_batch(batches: FakeBatchServer) -> None:
    end = batch("completed", 9, 1, results=[])
    batches.answer("GET", HERE, batch("validating"), batch("in_progress", 5), end)
    with on_terminal(batches, "show", ID, "--watch") as terminal:
        assert terminal.end() == 3
    assert "10/10" in terminal.text
    assert "status         completed" in terminal.text


CTRL_C = "\x03"


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("n\n", 1), (CTRL_C, 130)])
def test_a_terminal_is_asked_before_a_batch_is_deleted(
    batches: FakeBatchServer, answer: str, code: int
) -> None:
    deleted = {"id": ID, "object": "batch", "deletion": {"openrouter": "deleted"}}
    batches.answer("DELETE", HERE, deleted)
    with on_terminal(batches, "delete", ID) as terminal:
        terminal.read_until("[y/N]")
        assert batches.asked == []
        terminal.type(answer)
        # Python overlooks a Ctrl-C that comes when it is about to read: one presses it again.
        while answer == CTRL_C and not terminal.has_ended(1):
            terminal.type(answer)
        assert terminal.end() == code
    assert [each.method for each in batches.asked] == ["DELETE"][: code == 0]
    assert ("nothing was deleted" in terminal.text) is (code == 1)


_MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdin=open(sys.argv[1], "rb"))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(done.returncode)
"""


def memory_of(batches: FakeBatchServer, stdin: Path, *args: str | Path) -> int:
    """Run a command below a small process and return its peak memory."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, stdin, TOLLHOUSE, "batch", *args],
        env=clean_environment(batches.env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stderr)


BODY = json.dumps({"model": "acme/large", "messages": [{"role": "user", "content": "x" * 2_000}]})


def write_requests(file: Path, count: int) -> Path:
    with file.open("w") as stream:
        for number in range(count):
            stream.write(f'{{"custom_id": "request-{number}", "body": {BODY}}}\n')
    return file


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50,000 requests, 100 MB."""
    return write_requests(tmp_path_factory.mktemp("large") / "in.jsonl", LINES)


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 MB: more than what stands between a command and its server."""
    return write_requests(tmp_path_factory.mktemp("long") / "in.jsonl", LINES // 5)


@pytest.mark.parametrize(
    "given",
    [
        "file",
        pytest.param("stdin", marks=pytest.mark.soak),
        pytest.param("whole", marks=pytest.mark.soak),
    ],
)
def test_a_large_file_is_never_held(
    batches: FakeBatchServer, large_file: Path, tmp_path: Path, given: str
) -> None:
    batches.answer("POST", "/batches", PlannedAnswer(batch("validating"), 202))
    digest, size = sha256(), 0
    whole = tmp_path / "whole.json"
    with whole.open("w") as target:
        head = '{"endpoint":"/v1/chat/completions","model":"acme/large","requests":['
        for number in range(LINES):
            item = f'{{"custom_id":"request-{number}","body":{BODY}}}'
            text = ("," if number else head) + item
            digest.update(text.encode())
            size += len(text)
            if given == "whole":
                target.write(text)
        digest.update(b"]}")
        target.write("]}")
    name = {"file": large_file, "stdin": "-", "whole": whole}[given]
    assert memory_of(batches, large_file, "submit", name) < MOST_MEMORY
    assert batches.asked[0].size == size + 2 > 100_000_000
    assert batches.asked[0].digest == digest.hexdigest()


@pytest.mark.parametrize(
    "command",
    [
        "results",
        pytest.param("openai", marks=pytest.mark.soak),
        pytest.param("show", marks=pytest.mark.soak),
    ],
)
def test_large_results_are_never_held(
    batches: FakeBatchServer, lines: Path, tmp_path: Path, command: str
) -> None:
    batches.answer("GET", HERE, PlannedAnswer(large_results(LINES, "y" * 2_000)))
    out = tmp_path / "out.jsonl"
    args: dict[str, list[str | Path]] = {
        "results": ["results", ID, "-o", out],
        "openai": ["results", ID, "--format", "openai"],
        "show": ["show", ID],
    }
    assert memory_of(batches, lines, *args[command]) < MOST_MEMORY
    if command == "results":
        with out.open() as stream:
            assert sum(1 for _ in stream) == LINES
        assert out.stat().st_size > 100_000_000


def test_a_refusal_is_read_before_all_is_sent(
    batches: FakeBatchServer, runner: CommandRunner, long_file: Path
) -> None:
    refusal = {"error": {"code": 401, "message": "Invalid API key."}}
    batches.answer("POST", "/batches", PlannedAnswer(refusal, 401, unread=True))
    said = runner.run("batch", "submit", long_file, env=batches.env).error_line(1)
    assert said.startswith("Invalid API key.")


def test_what_is_not_sent_to_its_end_is_no_batch(
    batches: FakeBatchServer, runner: CommandRunner, long_file: Path
) -> None:
    busy = {"error": {"code": 503, "message": "Shutting down."}}
    batches.answer("POST", "/batches", PlannedAnswer(busy, 503, unread=True))
    said = runner.run("batch", "submit", long_file, env=batches.env).error_line(1)
    assert said.startswith("Shutting down.")
    assert said.endswith("No batch was made: not all of it was sent.")


def test_a_reader_that_has_enough_ends_it(batches: FakeBatchServer) -> None:
    batches.answer("GET", HERE, PlannedAnswer(large_results(LINES, "y" * 2_000)))
    command = f"'{forking_program()}' batch results {ID} | head -n 1 | wc -l"
    done = subprocess.run(
        ["sh", "-c", command],
        env=clean_environment(batches.env),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_json_is_utf_8_whatever_the_locale_is(batches: FakeBatchServer) -> None:
    batches.answer("GET", HERE, PlannedAnswer(large_results(3, "Grüße")))
    env = {**batches.env, "PYTHONIOENCODING": "ascii"}
    lines = tollhouse("batch", "results", ID, env=env).out.splitlines()
    assert [json.loads(each)["response"]["body"]["choices"][0] for each in lines] == [
        {"message": {"content": "Grüße"}}
    ] * 3
