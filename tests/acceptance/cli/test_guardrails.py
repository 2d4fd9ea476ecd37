"""Guardrails through a running gateway: who is asked, and what becomes of the request."""

import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.acceptance.cli.guardrail_server import (
    ANSWERS,
    SLOW,
    GuardrailServer,
    run_guardrail_server,
)
from tests.acceptance.cli.policy_key import KeyWithPolicy
from tests.support.server_process import ServerProcess, start_server

SECRET = "hush-hush"
PROMPT = "what nobody else may read"
NOBODY = "nobody"
FAILURES = ["garbage", "large", "broken", "moved", SLOW, NOBODY]
TIMEOUT_SECONDS = 0.5


def config(guard: GuardrailServer, closed_port: int) -> str:
    """Name a guardrail for every behaviour, and a lenient one besides."""
    lines = ["guardrails:"]
    for kind in (*ANSWERS, SLOW, NOBODY):
        origin = f"http://127.0.0.1:{closed_port}" if kind == NOBODY else guard.origin
        # A slow test machine may take its time, where a verdict is expected.
        seconds = TIMEOUT_SECONDS if kind == SLOW else 10
        entry = f"url: '{origin}/judge/{kind}', timeout_seconds: {seconds}"
        lines += [
            f"  - {{slug: {kind}, {entry}, headers: {{Authorization: 'Bearer {SECRET}'}}}}",
            f"  - {{slug: lenient-{kind}, {entry}, on_failure: allow}}",
        ]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def guard() -> Generator[GuardrailServer]:
    with run_guardrail_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, guard: GuardrailServer
) -> Generator[ServerProcess]:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        text = config(guard, closed.getsockname()[1])
        with start_server(tmp_path_factory.mktemp("guardrails"), config=text) as running:
            yield running


@pytest.fixture
def key(
    server: ServerProcess, guard: GuardrailServer, runner: CommandRunner, tmp_path: Path
) -> Generator[KeyWithPolicy]:
    guard.questions.clear()
    guard.headers.clear()
    policy_key = KeyWithPolicy(server, runner, tmp_path)
    yield policy_key
    policy_key.delete()


MESSAGES = [{"role": "user", "content": PROMPT}]


def test_a_request_that_a_guardrail_allows_is_answered(
    key: KeyWithPolicy, guard: GuardrailServer
) -> None:
    assert key.set_policy("guardrails: [allow]")["guardrails"] == ["allow"]
    reply = key.ask(messages=MESSAGES)
    assert reply.status_code == 200
    [question] = guard.questions
    assert question["id"] == reply.json()["id"]
    assert (question["endpoint"], question["model"]) == ("/chat/completions", "simulated/echo")
    assert PROMPT in question["texts"]
    assert guard.headers[0]["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_a_guardrail_refuses_is_a_403_with_its_findings(
    key: KeyWithPolicy, *, stream: bool
) -> None:
    key.set_policy("guardrails: [allow, refuse, refuse-silently]")
    reply = key.ask(messages=MESSAGES, stream=stream)
    assert reply.status_code == 403
    assert reply.json()["error"]["metadata"] == {
        "error_type": "permission_denied",
        "patterns": ["a name", "an address", "refuse-silently"],
    }


@pytest.mark.parametrize("path", ["/messages", "/messages/count_tokens"])
def test_messages_and_the_counting_of_their_tokens_are_judged_too(
    key: KeyWithPolicy, guard: GuardrailServer, path: str
) -> None:
    key.set_policy("guardrails: [refuse]")
    reply = key.ask(path, messages=MESSAGES)
    assert (reply.status_code, reply.json()["error"]["type"]) == (403, "permission_error")
    assert reply.json()["metadata"]["patterns"] == ["a name", "an address"]
    assert guard.questions[0]["endpoint"] == path


@pytest.mark.parametrize("kind", FAILURES)
def test_without_a_verdict_a_request_is_refused(key: KeyWithPolicy, kind: str) -> None:
    key.set_policy(f"guardrails: [{kind}]")
    reply = key.ask(messages=MESSAGES)
    assert reply.status_code == 503
    assert reply.json()["error"]["metadata"]["guardrails"] == [kind]
    assert kind in reply.json()["error"]["message"]


@pytest.mark.parametrize("kind", FAILURES)
def test_without_a_verdict_a_request_passes_where_the_settings_say_so(
    key: KeyWithPolicy, kind: str
) -> None:
    key.set_policy(f"guardrails: [lenient-{kind}]")
    assert key.ask(messages=MESSAGES).status_code == 200


def test_a_lenient_guardrail_refuses_all_the_same(key: KeyWithPolicy) -> None:
    key.set_policy("guardrails: [lenient-broken, lenient-refuse-silently]")
    refused = key.ask(messages=MESSAGES)
    assert refused.json()["error"]["metadata"]["patterns"] == ["lenient-refuse-silently"]


def test_a_pattern_refuses_before_a_guardrail_is_asked(
    key: KeyWithPolicy, guard: GuardrailServer
) -> None:
    key.set_policy('{guardrails: [refuse], patterns: ["nobody else"]}')
    refused = key.ask(messages=MESSAGES)
    assert refused.json()["error"]["metadata"]["patterns"] == ["nobody else"]
    assert guard.questions == []


def test_guardrails_of_the_workspace_hold_for_its_keys(
    key: KeyWithPolicy,
    guard: GuardrailServer,
    server: ServerProcess,
    runner: CommandRunner,
    tmp_path: Path,
) -> None:
    def set_workspace(text: str) -> None:
        file = tmp_path / "workspace.yaml"
        file.write_text(text)
        command = ("workspaces", "set", "default", "--policy", file)
        runner.run(*command, "--data-dir", server.data_dir, "--json").json()

    key.set_policy("guardrails: [allow]")
    set_workspace("guardrails: [refuse, allow]")
    try:
        assert key.ask(messages=MESSAGES).status_code == 403
    finally:
        set_workspace("")
    assert len(guard.questions) == 2
    assert key.ask(messages=MESSAGES).status_code == 200


def test_a_policy_that_names_no_guardrail_is_refused_when_it_is_set(
    server: ServerProcess, runner: CommandRunner, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("guardrails: [alow]")
    command = ("workspaces", "set", "default", "--policy", file, "--data-dir", server.data_dir)
    assert "no guardrail is called 'alow'; did you mean 'allow'?" in runner.run(
        *command
    ).error_line(1)


def test_a_guardrail_that_was_taken_out_of_the_settings_refuses(
    guard: GuardrailServer, runner: CommandRunner, tmp_path: Path
) -> None:
    url = f"{guard.origin}/judge/allow"
    text = f"guardrails: [{{slug: gone, url: '{url}', on_failure: allow}}]\n"
    with start_server(tmp_path, config=text) as before:
        key = KeyWithPolicy(before, runner, tmp_path)
        key.set_policy("guardrails: [gone]")
        assert key.ask().status_code == 200
    with start_server(tmp_path, config="") as key.server:
        refused = key.ask()
        assert refused.status_code == 503
        assert "the guardrail gone of a policy is not configured" in refused.text
        key.set_policy("")
        assert key.ask().status_code == 200


def test_the_log_and_the_answers_show_neither_secrets_nor_what_was_asked(
    key: KeyWithPolicy, server: ServerProcess
) -> None:
    for kind in ("refuse", "broken", "lenient-garbage"):
        key.set_policy(f"guardrails: [{kind}]")
        reply = key.ask(messages=MESSAGES)
        assert SECRET not in reply.text
        assert PROMPT not in reply.text or reply.status_code == 200
    log = server.stderr_text()
    assert "guardrail_failed" in log
    assert SECRET not in log
    assert PROMPT not in log
