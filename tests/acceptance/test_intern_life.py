"""An intern's life in a real sandbox, and what it is left with when something is killed."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.acceptance.canaries import PLANTED, Scanner
from tests.acceptance.egress_hosts import BOUND, OTHER
from tests.acceptance.intern_rooms import (
    Rooms,
    alive,
    daemons,
    family,
    kill,
    memory_of,
    sandboxed,
    until_nothing_runs,
)
from tests.acceptance.server_process import (
    TOLLHOUSE,
    ServerProcess,
    clean_environment,
    start_server,
)
from tests.acceptance.server_users import NUMBER, USERS, program_as, rights_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.egress_hosts import Hosts

pytestmark = pytest.mark.sandbox
VALUE = PLANTED[48]


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    """As whom the server runs."""
    return request.param


@pytest.fixture(scope="module")
def server(
    user: str, tmp_path_factory: pytest.TempPathFactory, hosts: Hosts
) -> Generator[ServerProcess]:
    folder = tmp_path_factory.mktemp("i")  # short: the paths of sockets are
    program = program_as(user, folder, [hosts.authority.parent])
    with start_server(folder, config=hosts.config(), program=program) as server:
        yield server


def test_a_whole_life_leaves_an_archive_and_no_process(
    user: str, tmp_path_factory: pytest.TempPathFactory, hosts: Hosts
) -> None:
    folder = tmp_path_factory.mktemp("w")
    program = program_as(user, folder, [hosts.authority.parent])
    with start_server(folder, config=hosts.config(), program=program) as server:
        assert user == "root" or rights_of(server.process.pid) == (NUMBER, 0)
        rooms = Rooms(server)
        rooms.ask("PUT", "/vault/secrets/token", {"value": VALUE, "hosts": [BOUND]})
        intern = rooms.run()
        assert rooms.put(intern, "note", b"kept") == 201
        ask = f"curl -sS -H 'Authorization: Bearer {{{{secret:token}}}}' {hosts.url(BOUND)}"
        rooms.output("ada", ask)
        assert hosts.authorizations(BOUND)[-1] == f"Bearer {VALUE}"
        rooms.suspend(intern)
        assert rooms.run() == intern
        assert rooms.output("ada", "cat note") == "kept"
        ran = family(server)
        assert rooms.ask("DELETE", f"/interns/{intern}").status_code == 202
        rooms.until(intern, {None})
        assert sandboxed(server.data_dir) == {}
        assert [path for path in server.data_dir.glob("blobs/interns/**/*") if path.is_file()]
    assert [ran[pid] for pid in alive(ran)] == []


def test_metrics_tell_what_runs_and_what_it_is_kept_to(rooms: Rooms, server: ServerProcess) -> None:
    rooms.run()
    metrics = httpx2.get(f"{server.origin}/metrics").text
    assert "tollhouse_interns_running 1.0" in metrics
    assert "tollhouse_interns_disk_full 0.0" in metrics
    assert 'tollhouse_intern_limit_enforced{limit="disk_bytes"} 1.0' in metrics


def test_what_an_intern_wrote_is_there_when_it_is_resumed(rooms: Rooms) -> None:
    intern = rooms.run()
    rooms.output("ada", "echo kept > note; mkdir -p a/b; echo deep > a/b/c; ln -s note link")
    rooms.suspend(intern)
    assert rooms.run() == intern
    assert rooms.output("ada", "cat note a/b/c link") == "kept\ndeep\nkept\n"


def test_its_programs_run_as_nobody_else(rooms: Rooms) -> None:
    rooms.run()
    told = rooms.output("ada", "id -u; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; pwd")
    assert told.split() == [
        *("1000", "CapEff:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2"),
        "/workspace",
    ]


def test_a_suspended_intern_runs_nothing(rooms: Rooms) -> None:
    data = rooms.server.data_dir
    intern = rooms.run()
    before = sandboxed(data)
    rooms.output("ada", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
    assert len(sandboxed(data)) > len(before)
    rooms.suspend(intern)
    until_nothing_runs(data)


def test_an_intern_has_a_host_name_of_its_own_where_the_operator_says_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("n")
    named = {"TOLLHOUSE_INTERNS__PUBLIC_URL": "http://{intern}.interns.test"}
    with start_server(folder, env=named) as server:
        rooms = Rooms(server)
        intern = rooms.run()
        found = rooms.get(intern)
        assert found is not None
        assert found["hostname"] == f"{intern}.interns.test"
        told = rooms.ask("GET", f"/interns/{intern}/daemon").json()
        assert told["origin"] == f"http://{intern}.interns.test"
        # Where the name leads is the network's: here a proxy that leads to the gateway.
        proxied = {**rooms.environment, "HTTP_PROXY": server.origin}
        for command in ("put ada - note", "get ada note -"):
            done = subprocess.run(
                [str(TOLLHOUSE), "intern", "files", *command.split()],
                env=clean_environment(proxied),
                input=b"kept",
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        assert done.stdout == b"kept"


def test_its_daemon_wants_the_token_that_was_revealed_last(rooms: Rooms) -> None:
    intern = rooms.run()
    first = rooms.ask("GET", f"/interns/{intern}/daemon").json()
    assert first["origin"] == rooms.server.origin
    rooms.suspend(intern)
    rooms.run()
    second = rooms.ask("GET", f"/interns/{intern}/daemon").json()
    url = f"{second['origin']}/healthz"

    def health(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(url, headers=headers, timeout=30).status_code

    assert (health(first["token"]), health(second["token"])) == (401, 200)


def test_a_secret_reaches_the_bound_host_and_is_nowhere_in_the_sandbox(
    rooms: Rooms, hosts: Hosts
) -> None:
    rooms.ask("PUT", "/vault/secrets/token", {"value": VALUE, "hosts": [BOUND]})
    rooms.run()
    ask = f"curl -sS -H 'Authorization: Bearer {{{{secret:token}}}}' {hosts.url(BOUND)}"
    told = json.loads(rooms.output("ada", ask))
    assert hosts.authorizations(BOUND)[-1] == f"Bearer {VALUE}"
    assert set(told["authorization"].removeprefix("Bearer ")) == {"*"}
    look = f"{ask}; {ask} | tee answer; env; cat /proc/*/environ; cat answer; find / -xdev"
    shown = rooms.script("ada", look)
    scanner = Scanner(PLANTED)
    assert scanner.in_bytes("output", shown.stdout + shown.stderr) == set()
    memory = [content for pid in sandboxed(rooms.server.data_dir) for content in memory_of(pid)]
    assert memory
    assert not any(VALUE.encode() in content for content in memory)


def test_a_host_that_it_is_not_bound_to_does_not_get_it(rooms: Rooms, hosts: Hosts) -> None:
    rooms.ask("PUT", "/vault/secrets/token", {"value": VALUE, "hosts": [BOUND]})
    rooms.run()
    before = len(hosts.requests)
    rooms.output("ada", f"curl -sS -H 'X-Key: {{{{secret:token}}}}' {hosts.url(OTHER)}")
    [got] = hosts.requests[before:]
    assert got["key"] == "{{secret:token}}"


def test_it_reaches_the_gateway_with_a_key_that_it_does_not_have(rooms: Rooms) -> None:
    rooms.run()
    body = json.dumps({"model": "simulated/echo", "messages": [{"role": "user", "content": "hi"}]})
    ask = f"curl -sS http://gateway.internal/v1/chat/completions -d '{body}'"
    reply = json.loads(rooms.output("ada", ask))
    assert reply["choices"][0]["message"]["content"]
    assert "sk-th" not in rooms.output("ada", "env; cat /proc/*/environ | tr '\\0' '\\n'")


def test_a_daemon_that_is_killed_is_started_again(rooms: Rooms) -> None:
    intern = rooms.run()
    rooms.output("ada", "echo kept > note")
    [daemon] = daemons(rooms.server.data_dir)
    kill(daemon)
    told = rooms.until_told(intern, "its sandbox ended.*\nrunning")
    assert "it was killed by signal 9" in told
    assert rooms.output("ada", "cat note") == "kept\n"


def test_a_server_that_is_killed_leaves_nothing_running_and_the_next_goes_on(
    user: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("k")
    program = program_as(user, folder)
    with start_server(folder, program=program) as first:
        key = first.api_key
        intern = Rooms(first).run()
        Rooms(first).output("ada", "echo kept > note")
        first.kill()
        until_nothing_runs(folder / "data")
        with start_server(folder, program=program) as second:
            rooms = Rooms(second, key)
            rooms.until(intern, {"running"})
            assert rooms.output("ada", "cat note") == "kept\n"
            second.stop()
    until_nothing_runs(folder / "data")
