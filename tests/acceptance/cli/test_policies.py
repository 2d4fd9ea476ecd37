"""Policies through a running gateway, set by the command line."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.acceptance.cli.policy_key import KeyWithPolicy
from tests.support.server_process import ServerProcess, start_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    """A server with one account: the shared one has those of other tests."""
    with start_server(tmp_path_factory.mktemp("policies")) as running:
        yield running


@pytest.fixture
def key(server: ServerProcess, runner: CommandRunner, tmp_path: Path) -> Generator[KeyWithPolicy]:
    policy_key = KeyWithPolicy(server, runner, tmp_path)
    yield policy_key
    policy_key.delete()


def test_what_a_policy_blocks_is_refused_with_the_reason(key: KeyWithPolicy) -> None:
    key.set_policy("blocked_models: [simulated/e*]")
    refused = key.ask()
    assert refused.status_code == 403
    assert refused.json()["error"]["metadata"] == {
        "error_type": "permission_denied",
        "reasons": ["The key's policy blocks the model simulated/echo."],
    }


def test_a_refusal_on_messages_is_in_anthropics_envelope(key: KeyWithPolicy) -> None:
    key.set_policy("allowed_models: []")
    refused = key.ask("/messages").json()
    assert refused["error"]["type"] == "permission_error"
    assert refused["metadata"]["reasons"]


def test_what_a_request_may_not_hold_is_refused_by_its_pattern(key: KeyWithPolicy) -> None:
    key.set_policy('patterns: ["project*falcon", "@email"]')
    refused = key.ask(messages=[{"role": "user", "content": "The Project is FALCON"}])
    assert refused.status_code == 403
    assert refused.json()["error"]["metadata"]["patterns"] == ["project*falcon"]
    assert "FALCON" not in refused.text
    assert key.ask().status_code == 200


def test_an_empty_file_takes_a_policy_away(key: KeyWithPolicy) -> None:
    key.set_policy("data_collection: deny")
    assert key.policy()["data_collection"] == "deny"
    assert key.ask().status_code == 403
    key.set_policy("")
    assert key.ask().status_code == 200


def test_a_file_that_is_no_policy_is_refused_and_changes_nothing(
    key: KeyWithPolicy, server: ServerProcess, runner: CommandRunner, tmp_path: Path
) -> None:
    key.set_policy("blocked_models: [x]")
    wrong = tmp_path / "wrong.yaml"
    command = ("workspaces", "set", "default", "--policy", wrong, "--data-dir", server.data_dir)
    for text, code, problem in (
        ("allowed: [x]", 1, "allowed: is not a known field"),
        ("- x", 2, "must hold a mapping"),
        ("{", 2, "neither YAML nor JSON"),
    ):
        wrong.write_text(text)
        assert problem in runner.run(*command).error_line(code)
    assert key.policy()["blocked_models"] == ["x"]


def test_a_file_that_is_not_there_is_named(
    server: ServerProcess, runner: CommandRunner, tmp_path: Path
) -> None:
    command = ("workspaces", "set", "default", "--policy", tmp_path / "none.yaml")
    done = runner.run(*command, "--data-dir", server.data_dir)
    assert "none.yaml cannot be read" in done.error_line(2)
