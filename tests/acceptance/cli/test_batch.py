"""`tollhouse batch` against a running gateway and its simulated provider."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner
from tests.support.accounts import Accounts
from tests.support.server_process import ServerProcess

ENDPOINTS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "Grüße"}]},
    "responses": {"input": "Grüße"},
    "messages": {"messages": [{"role": "user", "content": "Grüße"}], "max_tokens": 50},
    "embeddings": {"input": "Grüße"},
}
HELLO = ENDPOINTS["chat/completions"]


class BatchCommands:
    """Runs `tollhouse batch` with the key of one account."""

    def __init__(self, runner: CommandRunner, server: ServerProcess, key: str) -> None:
        self._runner = runner
        self._env = {"TOLLHOUSE_API_KEY": key, "TOLLHOUSE_DATA_DIR": str(server.data_dir)}

    def run(self, *args: str | Path) -> CommandResult:
        return self._runner.run("batch", *args, env=self._env)


@pytest.fixture
def batches(runner: CommandRunner, server: ServerProcess, accounts: Accounts) -> BatchCommands:
    return BatchCommands(runner, server, accounts.create("5").key)


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def written(*bodies: dict[str, Any], **more: Any) -> Path:
        file = tmp_path / "in.jsonl"
        lines = [{"custom_id": f"c{n}", **more, "body": body} for n, body in enumerate(bodies)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file

    return written


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_batch_from_its_file_to_its_results(
    batches: BatchCommands, written: Any, tmp_path: Path, endpoint: str
) -> None:
    name = "embedding" if endpoint == "embeddings" else "echo"
    model = ("--model", f"simulated/{name}", "--endpoint", endpoint, "--provider", "simulated")
    done = batches.run("submit", written(*[ENDPOINTS[endpoint]] * 3), *model, "--watch", "--json")
    assert done.code == 0, done
    ended = json.loads(done.out)
    assert ended["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    assert ended["endpoint"] == f"/v1/{endpoint}"
    assert batches.run("show", ended["id"], "--json").json() == ended
    out = tmp_path / "out.jsonl"
    assert batches.run("results", ended["id"], "-o", out).code == 0
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(each["custom_id"] for each in results) == ["c0", "c1", "c2"]
    if name == "echo":
        assert "Grüße" in out.read_text()


def test_openais_format_says_everything_itself(batches: BatchCommands, written: Any) -> None:
    file = written(
        *[{"model": "simulated/echo", **ENDPOINTS["responses"]}] * 2,
        method="POST",
        url="/v1/responses",
    )
    done = batches.run("submit", file, "--watch", "--json")
    assert (done.code, json.loads(done.out)["endpoint"]) == (0, "/v1/responses")


def test_a_whole_batch_is_taken(batches: BatchCommands, tmp_path: Path) -> None:
    file = tmp_path / "batch.json"
    requests = [{"custom_id": "a", "body": HELLO}]
    whole = {"requests": requests, "model": "simulated/echo", "endpoint": "/v1/chat/completions"}
    file.write_text(json.dumps(whole, indent=2))
    assert batches.run("submit", file, "--watch").code == 0


def test_a_batch_with_failures_has_an_exit_code_of_its_own(
    batches: BatchCommands, written: Any
) -> None:
    model = ("--model", "simulated/echo", "--watch", "--json")
    done = batches.run("submit", written(HELLO, {"messages": 7}), *model)
    assert done.code == 3, done
    name = json.loads(done.out)["id"]
    lines = batches.run("results", name, "--format", "openai").out.splitlines()
    errors = [error for line in lines if (error := json.loads(line)["error"])]
    assert [sorted(error) for error in errors] == [["code", "message"]]
    done = batches.run("submit", written({"messages": 7}), *model)
    assert done.code == 4, done
    refused = batches.run("results", json.loads(done.out)["id"]).error_line(4)
    assert "None of the 1 requests can be run" in refused


def test_repeating_with_the_same_key_makes_no_second_batch(
    batches: BatchCommands, written: Any
) -> None:
    args = (
        "submit",
        written(HELLO),
        "--model",
        "simulated/echo",
        "--idempotency-key",
        "k",
        "--json",
    )
    assert len({batches.run(*args).json()["id"] for _ in range(2)}) == 1
    assert len(batches.run("list", "--json").json()) == 1


def test_batches_are_listed(batches: BatchCommands, written: Any) -> None:
    file = written(HELLO)
    model = ("--model", "simulated/echo", "--watch", "--json")
    made = [json.loads(batches.run("submit", file, *model).out)["id"] for _ in range(3)]
    made.reverse()

    def listed(*args: str) -> list[str]:
        return [each["id"] for each in batches.run("list", "--json", *args).json()]

    assert listed() == listed("--all") == made
    assert listed("--limit", "2") == made[:2]
    assert listed("--status", "completed", "--status", "failed") == made
    assert listed("--status", "cancelled") == []
    assert listed("--created-after", "2000-01-01", "--created-before", "2000-01-02") == []
    assert "created_after" in batches.run("list", "--created-after", "never").error_line(1)


def test_a_batch_that_runs_is_cancelled_and_then_deleted(
    batches: BatchCommands, written: Any
) -> None:
    slow = {"messages": [{"role": "user", "content": "word " * 20}]}
    file = written(*[slow] * 200)
    name = batches.run("submit", file, "--model", "simulated/slow", "--json").json()["id"]
    early = batches.run("results", name)
    assert early.code == 5
    assert len(early.out.splitlines()) < 200
    assert "cancel it" in batches.run("delete", name).error_line(1)
    assert batches.run("cancel", name, "--json").json()["status"] in {"cancelling", "cancelled"}
    done = batches.run("show", name, "--watch")
    assert (done.code, "status\tcancelled" in done.out.splitlines()) == (4, True)
    assert "cancelled" in batches.run("cancel", name).error_line(1)
    assert len(batches.run("results", name).out.splitlines()) == 200
    deleted = batches.run("delete", name, "--yes").out.splitlines()
    assert deleted[:2] == [f"id\t{name}", "deleted\tyes"]
    assert "deleted" in batches.run("show", name).error_line(1)


def test_a_wrong_model_or_key_shows_the_servers_error(
    batches: BatchCommands, runner: CommandRunner, server: ServerProcess, written: Any
) -> None:
    refused = batches.run("submit", written(HELLO), "--model", "acme/none").error_line(1)
    assert "acme/none" in refused
    manager = BatchCommands(runner, server, server.management_key)
    refused = manager.run("submit", written(HELLO), "--model", "simulated/echo").error_line(1)
    assert "`tollhouse keys create NAME`" in refused


def test_a_batch_without_credits_is_refused(
    runner: CommandRunner, server: ServerProcess, accounts: Accounts, written: Any
) -> None:
    poor = BatchCommands(runner, server, accounts.create().key)
    refused = poor.run("submit", written(HELLO), "--model", "simulated/echo").error_line(1)
    assert "credits" in refused.lower()
