"""An intern's life cycle in a real sandbox, and its recovery after kills."""

import json
import subprocess
from collections.abc import Generator

import httpx2
import pytest

from tests.acceptance.egress_hosts import BOUND, OTHER, EgressHosts
from tests.support.canaries import PLANTED, Scanner
from tests.support.forked import forking_program
from tests.support.intern_client import (
    InternClient,
    daemons,
    kill,
    memory_of,
    process_tree,
    sandbox_processes,
    still_running,
    until_nothing_runs,
)
from tests.support.server_process import ServerProcess, clean_environment, start_server
from tests.support.server_users import NUMBER, USERS, owner, rights_of

pytestmark = pytest.mark.sandbox
VALUE = PLANTED[48]
WRITE = "mkdir -p a/b; echo deep > a/b/c; ln -s note link"
RIGHTS = "id -u; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; pwd"
NO_RIGHTS = [
    *("1000", "CapEff:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2"),
    "/workspace",
]


@pytest.fixture(
    scope="module",
    # The tests' PostgreSQL is reached through a folder that is not the ordinary user's.
    params=[
        *(pytest.param(each, marks=pytest.mark.soak) for each in USERS[:-1]),
        pytest.param(USERS[-1], marks=pytest.mark.sqlite),
    ],
)
def user(request: pytest.FixtureRequest) -> str:
    """The user as whom the server runs."""
    return request.param


@pytest.fixture(scope="module")
def server(
    user: str, tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts
) -> Generator[ServerProcess]:
    folder = tmp_path_factory.mktemp("i")  # short: the paths of sockets are
    become = owner(user, folder, [hosts.authority.parent])
    with start_server(folder, config=hosts.config(), become=become) as server:
        yield server


def test_a_whole_life_leaves_an_archive_and_no_process(
    user: str, tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts
) -> None:
    folder = tmp_path_factory.mktemp("w")
    become = owner(user, folder, [hosts.authority.parent])
    with start_server(folder, config=hosts.config(), become=become) as server:
        assert user == "root" or rights_of(server.process.pid) == (NUMBER, 0)
        interns = InternClient(server)
        interns.request("PUT", "/vault/secrets/token", {"value": VALUE, "hosts": [BOUND]})
        intern = interns.run()
        assert interns.put_file(intern, "note", b"kept") == 201
        ask = f"curl -sS -H 'Authorization: Bearer {{{{secret:token}}}}' {hosts.url(BOUND)}"
        told = interns.script_output("ada", f"{ask} > answer; {WRITE}; {RIGHTS}")
        assert told.split() == NO_RIGHTS
        assert hosts.authorizations(BOUND)[-1] == f"Bearer {VALUE}"
        interns.suspend(intern)
        assert interns.run() == intern
        assert interns.script_output("ada", "cat note a/b/c link") == "keptdeep\nkept"
        ran = process_tree(server)
        assert interns.request("DELETE", f"/interns/{intern}").status_code == 202
        interns.until(intern, {None})
        assert sandbox_processes(server.data_dir) == {}
        assert [path for path in server.data_dir.glob("blobs/interns/**/*") if path.is_file()]
    assert [ran[pid] for pid in still_running(ran)] == []


def test_metrics_show_running_interns_and_enforced_limits(
    interns: InternClient, server: ServerProcess
) -> None:
    interns.run()
    metrics = httpx2.get(f"{server.origin}/metrics").text
    assert "tollhouse_interns_running 1.0" in metrics
    assert "tollhouse_interns_disk_full 0.0" in metrics
    assert 'tollhouse_intern_limit_enforced{limit="disk_bytes"} 1.0' in metrics


def test_a_suspended_intern_runs_nothing(interns: InternClient) -> None:
    data = interns.server.data_dir
    intern = interns.run()
    before = sandbox_processes(data)
    interns.script_output("ada", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
    assert len(sandbox_processes(data)) > len(before)
    interns.suspend(intern)
    until_nothing_runs(data)


def test_an_intern_has_a_host_name_of_its_own_where_the_operator_says_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("n")
    named = {"TOLLHOUSE_INTERNS__PUBLIC_URL": "http://{intern}.interns.test"}
    with start_server(folder, env=named) as server:
        interns = InternClient(server)
        intern = interns.run()
        found = interns.get(intern)
        assert found is not None
        assert found["hostname"] == f"{intern}.interns.test"
        told = interns.request("GET", f"/interns/{intern}/daemon").json()
        assert told["origin"] == f"http://{intern}.interns.test"
        # Where the name leads is the network's: here a proxy that leads to the gateway.
        proxied = {**interns.environment, "HTTP_PROXY": server.origin}
        for command in ("put ada - note", "get ada note -"):
            done = subprocess.run(
                [str(forking_program()), "intern", "files", *command.split()],
                env=clean_environment(proxied),
                input=b"kept",
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        assert done.stdout == b"kept"


def test_a_daemon_accepts_only_the_token_that_was_revealed_last(interns: InternClient) -> None:
    intern = interns.run()
    first = interns.request("GET", f"/interns/{intern}/daemon").json()
    assert first["origin"] == interns.server.origin
    interns.suspend(intern)
    interns.run()
    second = interns.request("GET", f"/interns/{intern}/daemon").json()
    url = f"{second['origin']}/healthz"

    def health(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(url, headers=headers, timeout=30).status_code

    assert (health(first["token"]), health(second["token"])) == (401, 200)


def test_a_secret_reaches_the_bound_host_and_is_nowhere_in_the_sandbox(
    interns: InternClient, hosts: EgressHosts
) -> None:
    interns.request("PUT", "/vault/secrets/token", {"value": VALUE, "hosts": [BOUND]})
    interns.run()
    ask = f"curl -sS -H 'Authorization: Bearer {{{{secret:token}}}}' {hosts.url(BOUND)}"
    told = json.loads(interns.script_output("ada", ask))
    assert hosts.authorizations(BOUND)[-1] == f"Bearer {VALUE}"
    assert set(told["authorization"].removeprefix("Bearer ")) == {"*"}
    look = f"{ask}; {ask} | tee answer; env; cat /proc/*/environ; cat answer; find / -xdev"
    shown = interns.run_script("ada", look)
    scanner = Scanner(PLANTED)
    assert scanner.in_bytes("output", shown.stdout + shown.stderr) == set()
    memory = [
        content for pid in sandbox_processes(interns.server.data_dir) for content in memory_of(pid)
    ]
    assert memory
    assert not any(VALUE.encode() in content for content in memory)


def test_a_secret_does_not_reach_a_host_that_is_not_bound(
    interns: InternClient, hosts: EgressHosts
) -> None:
    interns.request("PUT", "/vault/secrets/token", {"value": VALUE, "hosts": [BOUND]})
    interns.run()
    before = len(hosts.requests)
    interns.script_output("ada", f"curl -sS -H 'X-Key: {{{{secret:token}}}}' {hosts.url(OTHER)}")
    [got] = hosts.requests[before:]
    assert got["key"] == "{{secret:token}}"


def test_an_intern_reaches_the_gateway_without_having_the_key(interns: InternClient) -> None:
    interns.run()
    body = json.dumps({"model": "simulated/echo", "messages": [{"role": "user", "content": "hi"}]})
    ask = f"curl -sS http://gateway.internal/v1/chat/completions -d '{body}'"
    reply = json.loads(interns.script_output("ada", ask))
    assert reply["choices"][0]["message"]["content"]
    assert "sk-th" not in interns.script_output("ada", "env; cat /proc/*/environ | tr '\\0' '\\n'")


def test_a_daemon_that_is_killed_is_started_again(interns: InternClient) -> None:
    intern = interns.run()
    interns.script_output("ada", "echo kept > note")
    [daemon] = daemons(interns.server.data_dir)
    kill(daemon)
    told = interns.until_logged(intern, "its sandbox ended.*\nrunning")
    assert "it was killed by signal 9" in told
    assert interns.script_output("ada", "cat note") == "kept\n"


def test_a_server_that_is_killed_leaves_nothing_running_and_the_next_goes_on(
    user: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("k")
    become = owner(user, folder)
    with start_server(folder, become=become) as first:
        key = first.api_key
        intern = InternClient(first).run()
        InternClient(first).script_output("ada", "echo kept > note")
        first.kill()
        until_nothing_runs(folder / "data")
        with start_server(folder, become=become) as second:
            interns = InternClient(second, key)
            interns.until(intern, {"running"})
            assert interns.script_output("ada", "cat note") == "kept\n"
            second.stop()
    until_nothing_runs(folder / "data")
