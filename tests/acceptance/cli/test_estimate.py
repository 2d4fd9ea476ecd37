"""`tollhouse estimate` against a running server."""

import json
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner
from tests.support.server_process import ServerProcess

CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(CHAT | {"max_tokens": 100}))
    return file


def run(server: ServerProcess, runner: CommandRunner, *args: str | Path) -> CommandResult:
    env = {"TOLLHOUSE_BASE_URL": server.base_url, "TOLLHOUSE_API_KEY": server.api_key}
    return runner.run("estimate", *args, env=env)


def test_a_pipe_gets_each_part_under_its_name(
    server: ServerProcess, runner: CommandRunner, request_file: Path
) -> None:
    done = run(server, runner, request_file)
    assert done.code == 0, done
    lines = [line.split("\t") for line in done.out.splitlines()]
    said = {name: value for part, name, value, *_ in lines if part == "request"}
    assert (said["model"], said["output tokens"]) == ("simulated/echo", "100")
    assert said["would be"] == "sent"
    assert 0.0002 <= float(said["hold"]) < 0.001
    assert [line[1:6] for line in lines if line[0] == "endpoints"] == [
        ["1", "simulated/echo", "simulated", "echo", "chat/completions"]
    ]
    limits = [line for line in lines if line[0] == "limits"]
    assert limits
    assert {line[-1] for line in limits} == {"yes"}


def test_json_is_what_the_server_said(
    server: ServerProcess, runner: CommandRunner, request_file: Path
) -> None:
    found = run(server, runner, "--json", "--endpoint", "/v1/chat/completions", request_file).json()
    assert set(found) >= {"tokens", "endpoints", "left_out", "hold", "limits", "refusal"}


def test_what_is_no_request_is_one_line(
    server: ServerProcess, runner: CommandRunner, tmp_path: Path
) -> None:
    file = tmp_path / "broken.json"
    for text, word in [("{", "no JSON"), ("[]", "object"), ("[" * 100_000, "no JSON")]:
        file.write_text(text)
        assert word in run(server, runner, file).error_line(2)
    file.write_bytes(b"\xff")
    assert "no JSON" in run(server, runner, file).error_line(2)
    assert "cannot be read" in run(server, runner, tmp_path / "none").error_line(2)
    file.write_text("{}")
    assert "model" in run(server, runner, file).error_line(1)


def test_the_server_of_a_data_folder_asks_for_a_key(
    server: ServerProcess, runner: CommandRunner, request_file: Path
) -> None:
    done = runner.run("estimate", request_file, "--data-dir", server.data_dir)
    assert "TOLLHOUSE_API_KEY" in done.error_line(1)
