"""Rules of every command: exit codes, one line on stderr, keys that are never shown."""

import signal
import socket
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner, tollhouse
from tests.support.server_process import TOLLHOUSE, ServerProcess, clean_environment, restore_sigint

VERSION = version("tollhouse")
WRONG_KEY = "sk-th-v1-not-a-key-of-anybody"


def test_the_version_is_printed(runner: CommandRunner) -> None:
    assert tollhouse("version").out == f"tollhouse {VERSION}\n"
    assert runner.run("--version").out == f"tollhouse {VERSION}\n"
    assert runner.run("version", "--json").json() == {"version": VERSION}


def test_the_module_is_the_program() -> None:
    command = [TOLLHOUSE.with_name("python"), "-m", "tollhouse", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"tollhouse {VERSION}\n"


@pytest.mark.parametrize(
    "args", [["nothing"], ["keys"], ["keys", "create"], ["keys", "list", "--nothing"]]
)
def test_a_wrong_command_line_ends_with_2_and_shows_the_way_to_the_help(
    runner: CommandRunner, args: list[str]
) -> None:
    done = runner.run(*args)
    assert (done.code, done.out) == (2, "")
    assert "-h" in done.err
    assert "Traceback" not in done.err


def test_a_key_is_not_shown_by_any_refusal(server: ServerProcess, runner: CommandRunner) -> None:
    url = ("--base-url", server.base_url)
    for args, env in [
        (["keys", "list", *url, "--api-key", WRONG_KEY], {}),
        (["keys", "list", *url], {"TOLLHOUSE_API_KEY": WRONG_KEY}),
    ]:
        refused = runner.run(*args, env=env).error_line(1)
        assert "TOLLHOUSE_API_KEY" in refused
        assert WRONG_KEY not in refused


def test_without_a_key_the_server_says_what_is_missing(
    server: ServerProcess, runner: CommandRunner
) -> None:
    refused = runner.run("keys", "list", "--base-url", server.origin).error_line(1)
    assert refused.startswith("No auth credentials found. Set TOLLHOUSE_API_KEY")
    assert runner.run("models", "list", "--base-url", server.origin).code == 0


def test_an_api_key_may_look_at_itself_and_manage_nothing(
    server: ServerProcess, runner: CommandRunner
) -> None:
    env = {"TOLLHOUSE_BASE_URL": f"{server.origin}/api/v1/", "TOLLHOUSE_API_KEY": server.api_key}
    shown = runner.run("key", "show", "--json", env=env).json()
    assert shown["is_management_key"] is False
    assert "management key" in runner.run("accounts", "list", env=env).error_line(1)
    assert "No such generation." in runner.run("generation", "show", "gen-1", env=env).error_line(1)


def test_a_command_about_a_key_needs_one(server: ServerProcess, runner: CommandRunner) -> None:
    refused = runner.run("key", "show", "--data-dir", server.data_dir).error_line(1)
    assert "Set TOLLHOUSE_API_KEY" in refused


def test_a_command_about_a_key_finds_the_server_of_a_data_folder(
    server: ServerProcess, runner: CommandRunner, bootstrapped: Path
) -> None:
    env = {"TOLLHOUSE_API_KEY": server.api_key, "HTTP_PROXY": "http://127.0.0.1:1"}
    found = runner.run("key", "show", "--data-dir", server.data_dir, "--json", env=env).json()
    assert found["is_management_key"] is False
    refused = runner.run("key", "show", "--data-dir", bootstrapped, env=env).error_line(1)
    assert "no server runs on the data folder" in refused


def test_an_unreachable_server_is_one_line(runner: CommandRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = runner.run("models", "list", "--base-url", f"http://127.0.0.1:{port}").error_line(1)
    assert f"http://127.0.0.1:{port}" in refused
    assert "cannot be reached" in refused


def test_two_servers_at_once_are_refused(tmp_path: Path, runner: CommandRunner) -> None:
    args = ("--base-url", "http://127.0.0.1:1", "--data-dir", tmp_path)
    assert "--data-dir" in runner.run("keys", "list", *args).error_line(2)


def test_an_unknown_variable_is_refused(tmp_path: Path, runner: CommandRunner) -> None:
    env = {"TOLLHOUSE_DATA_DIRR": "x"}
    refused = runner.run("keys", "list", "--data-dir", tmp_path, env=env).error_line(2)
    assert "TOLLHOUSE_DATA_DIR" in refused


def test_a_closed_pipe_is_no_error(server: ServerProcess) -> None:
    command = f"'{TOLLHOUSE}' config env | head -n 1; '{TOLLHOUSE}' --help | true"
    done = subprocess.run(
        ["sh", "-c", command],
        env=clean_environment({"TOLLHOUSE_DATA_DIR": str(server.data_dir)}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_manager_of_one_account_is_no_operator(
    server: ServerProcess, runner: CommandRunner
) -> None:
    here = ("--data-dir", server.data_dir, "--json")
    account = runner.run("accounts", "create", "Tenant", *here).json()["id"]
    options = ("--kind", "management", "--account", account)
    key = runner.run("keys", "create", "tenant", *options, *here).json()["key"]
    env = {"TOLLHOUSE_BASE_URL": server.base_url, "TOLLHOUSE_API_KEY": key}
    assert [each["id"] for each in runner.run("accounts", "list", "--json", env=env).json()] == [
        account
    ]
    for args in (["credits", "add", "5"], ["accounts", "create", "More"]):
        assert "operator" in runner.run(*args, env=env).error_line(1)
    assert runner.run("credits", "show", "--json", env=env).json()["balance"] == 0
    assert runner.run("keys", "list", env=env).out.count("\n") == 1


def test_ctrl_c_ends_a_command_with_130() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [TOLLHOUSE, "models", "list", "--base-url", url],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=restore_sigint,  # noqa: PLW1509 - no thread here holds a lock
        )
        connection, _ = silent.accept()
        with process, connection:
            connection.recv(65_536)  # it waits for the reply
            process.send_signal(signal.SIGINT)
            try:
                assert process.communicate(timeout=30) == ("", "")
            finally:
                process.kill()
    assert process.returncode == 130


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [TOLLHOUSE, "version"],
            env=clean_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "the output cannot be written (No space left on device)\n"
