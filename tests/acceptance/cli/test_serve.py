"""`tollhouse serve`: its output when it starts, and when it cannot."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from tests.acceptance.cli.command import CommandRunner
from tests.support.server_process import TOLLHOUSE, ServerProcess, clean_environment, start_server


def banner_of(folder: Path, env: dict[str, str] | None = None) -> tuple[subprocess.Popen[str], str]:
    """Start a server for a person; return it and what it prints until it serves."""
    process = subprocess.Popen(
        [TOLLHOUSE, "serve", "--port", "0", "--data-dir", folder],
        env=clean_environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "curl" in line or "Another key:" in line:
            break
    return process, "".join(lines)


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> int:
    process.send_signal(number)
    process.communicate(timeout=30)
    return process.returncode


def test_the_first_start_shows_the_keys_and_a_curl_line_that_works(tmp_path: Path) -> None:
    process, banner = banner_of(tmp_path / "my data")
    try:
        assert "Management key  sk-th-mgmt-v1-" in banner
        assert str(tmp_path / "my data") in banner
        line = next(line for line in banner.splitlines() if "curl" in line)
        said = subprocess.run(
            ["sh", "-c", f"{line.strip()} --silent --show-error --fail"],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert said.returncode == 0, said
        assert "Hello" in json.loads(said.stdout)["choices"][0]["message"]["content"]
    finally:
        assert end(process) == 0


def test_a_later_start_shows_no_key_but_how_to_make_one(bootstrapped: Path) -> None:
    folder = bootstrapped.rename(bootstrapped.with_name("my data"))
    process, banner = banner_of(folder, {"PATH": os.environ["PATH"]})
    try:
        assert "sk-th-" not in banner
        hint = next(line for line in banner.splitlines() if line.startswith("Another key: "))
        command = hint.removeprefix("Another key: ").replace("NAME", "another")
        made = subprocess.run(
            ["sh", "-c", command],
            env=clean_environment({"PATH": f"{TOLLHOUSE.parent}:{os.environ['PATH']}"}),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert "key\tsk-th-v1-" in made.stdout, made
    finally:
        assert end(process, signal.SIGINT) == 0


def test_keys_and_control_socket_from_start_to_kill_to_start(
    tmp_path: Path, runner: CommandRunner
) -> None:
    first = start_server(tmp_path)
    assert first.api_key.startswith("sk-th-v1-")
    assert first.management_key.startswith("sk-th-mgmt-v1-")
    assert first.announced["example_model"] == "simulated/echo"
    assert first.api_key not in first.stderr_text()
    assert first.control_socket.stat().st_mode & 0o777 == 0o600
    first.kill()
    # What a killed server leaves behind is in nobody's way.
    assert first.control_socket.exists()
    assert runner.run("accounts", "list", "--data-dir", first.data_dir).code == 0
    with start_server(tmp_path) as second:
        assert second.announced["api_key"] is None
        assert second.announced["management_key"] is None
        assert second.announced.keys() == first.announced.keys()
        assert runner.run("accounts", "list", "--data-dir", first.data_dir).code == 0
    assert not second.control_socket.exists()


def test_a_second_server_on_the_folder_names_the_first(
    server: ServerProcess, runner: CommandRunner
) -> None:
    refused = runner.run("serve", "--port", "0", "--data-dir", server.data_dir).error_line(2)
    assert server.origin in refused
    assert str(server.process.pid) in refused


def test_a_port_in_use_is_named_and_nothing_is_made(tmp_path: Path, runner: CommandRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = runner.run("serve", "--port", port, "--data-dir", tmp_path / "data").error_line(2)
    assert f"127.0.0.1:{port}" in refused
    assert "--port" in refused
    assert not (tmp_path / "data").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, runner: CommandRunner) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "data"
    for refused in (
        runner.run("serve", "--port", "0", "--data-dir", folder).error_line(2),
        runner.run("bootstrap", "--data-dir", folder).error_line(2),
        runner.run("migrate", "--data-dir", folder).error_line(2),
    ):
        assert str(folder) in refused
    assert (tmp_path / "file").read_text() == "in the way"


def test_what_else_is_wrong_with_the_settings_is_named(
    tmp_path: Path, runner: CommandRunner
) -> None:
    unpriced, misspelt = tmp_path / "unpriced.yaml", tmp_path / "misspelt.yaml"
    unpriced.write_text(UNPRICED)
    misspelt.write_text("server: {prot: 1}")
    no_port = f"{misspelt}:1: server.prot: there is no such setting; the nearest is 'port'"
    for args, named in [
        (["--config", misspelt], no_port),
        (["--config", unpriced], "acme/unheard-of"),
        (["--config", tmp_path / "missing.yaml"], "missing.yaml"),
        (["--port", "eighty"], "--port: must be a whole number"),
        (["--host", "no such host"], "--host"),
        (["--log-level", "loud"], "--log-level"),
    ]:
        refused = runner.run("serve", *args, "--data-dir", tmp_path / "data").error_line(2)
        assert named in refused
        assert not (tmp_path / "data").exists()


UNPRICED = """
providers:
  - {slug: acme, kind: openai_compatible, base_url: "https://llm.acme.example/v1"}
models:
  - id: acme/unheard-of
    context_length: 1000
    endpoints: [{provider: acme, model: unheard-of}]
"""


def test_a_server_may_open_as_many_files_as_the_system_allows(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    assert soft == hard
