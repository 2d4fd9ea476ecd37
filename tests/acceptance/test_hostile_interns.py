"""Hostile programs of interns: exhausting resources and escaping the sandbox harm nobody else.

Each tries it in a real sandbox, of a server that root runs and of one that anybody runs. All are
programs of one intern, which none of them has harmed.
"""

from collections.abc import Generator

import pytest

from tests.support.intern_client import ASK_GATEWAY, InternClient, until_nothing_runs
from tests.support.server_process import ServerProcess, start_server
from tests.support.server_users import USERS, owner
from tests.support.waiting import wait_until

pytestmark = pytest.mark.sandbox
SMALL = """
interns:
  memory_bytes: 268435456
  processes: 64
  cpu_percent: 100
  disk_bytes: 16777216
  open_files: 128
  files: 1000
"""


@pytest.fixture(
    scope="module",
    params=[USERS[0], *(pytest.param(each, marks=pytest.mark.soak) for each in USERS[1:])],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServerProcess]:
    folder = tmp_path_factory.mktemp("m")
    become = owner(request.param, folder)
    with start_server(folder, config=SMALL, become=become) as server:
        yield server


def way_out(interns: InternClient, name: str = "ada") -> str:
    """Return the status with which an intern reaches the gateway through its proxy."""
    return interns.script_output(name, ASK_GATEWAY)


# Programs that take all there is


def test_a_program_that_forks_without_end_does_not_keep_its_intern_from_suspension(
    interns: InternClient,
) -> None:
    intern = interns.run()
    script = "printf '#!/bin/sh\\n./bomb & ./bomb & wait\\n' > bomb; chmod +x bomb\n"
    interns.script_output("ada", f"{script} setsid ./bomb > /dev/null 2>&1 < /dev/null & sleep 0.5")
    assert interns.healthy(intern)
    interns.suspend(intern)
    until_nothing_runs(interns.server.data_dir, intern)
    assert interns.run() == intern
    assert interns.script_output("ada", "ls bomb") == "bomb\n"


def test_a_program_that_eats_memory_is_all_that_ends(interns: InternClient) -> None:
    intern = interns.run()
    told = interns.script_output("ada", "tail /dev/zero > /dev/null 2>&1 || echo ended")
    assert told.endswith("ended\n")
    assert interns.healthy(intern)
    assert interns.script_output("ada", "echo alive") == "alive\n"


def test_a_full_workspace_takes_no_more_until_something_is_deleted(interns: InternClient) -> None:
    intern = interns.run()
    interns.script_output("ada", "for n in $(seq 20); do head -c 1M /dev/zero > f$n; done; true")

    def until(status: set[int]) -> None:
        wait_until(lambda: interns.put_file(intern, "note", b"here") in status, pause=0.1)

    until({507})
    assert interns.healthy(intern)
    interns.script_output("ada", "rm f*")
    until({200, 201})
    interns.suspend(intern)


def test_a_workspace_of_more_names_than_it_may_have_is_suspended_and_archived(
    interns: InternClient,
) -> None:
    intern = interns.run("eve")
    interns.script_output("eve", "for n in $(seq 1500); do : > e$n; done")
    interns.suspend(intern)
    assert interns.request("DELETE", f"/interns/{intern}").status_code == 202
    assert interns.until(intern, {"destroy_failed", None}) is None


def test_a_thousand_connections_block_the_egress_of_other_interns_only_briefly(
    interns: InternClient,
) -> None:
    interns.run("cal")
    interns.run("bob")
    hold = "for n in $(seq 250); do exec {fd}<>/dev/tcp/127.0.0.1/3128 || break; done 2> /dev/null"
    held = f"for m in 1 2 3 4; do ({hold}; sleep 2) & done; sleep 1"
    interns.script_output("cal", f"({held}) > /dev/null 2>&1; true")
    assert way_out(interns, "bob") == "200"
    interns.run_script("cal", "pkill sleep")  # the daemon may have too many files open
    # What has ended takes nothing any more.
    wait_until(lambda: "200" in interns.run_script("cal", ASK_GATEWAY).stdout.decode())


# Programs that want out


def test_a_sandbox_reaches_only_the_proxys_addresses(interns: InternClient) -> None:
    interns.run()
    bob = interns.run("bob")
    told = interns.request("GET", f"/interns/{bob}/daemon").json()
    port, token = told["origin"].rpartition(":")[2], told["token"]
    assert interns.daemon(bob, "GET", "/healthz").is_success
    places = [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "http://[fd00:ec2::254]/",
        f"{interns.server.origin}/healthz",
        f"http://localhost:{port}/healthz",
        f"https://127.0.0.1:{port}/healthz",
        f"http://[::ffff:127.0.0.1]:{port}/healthz",
        "http://0.0.0.0:80/",
    ]
    curl = f"curl -sS -m 10 -o answer -w '%{{http_code}}\\n' -H 'Authorization: Bearer {token}'"
    for way, wanted in (
        ("--noproxy '*'", {"000"}),
        ("--noproxy '' -x http://127.0.0.1:3128", {"000", "403"}),
    ):
        script = "; ".join(f"{curl} {way} '{place}' 2> /dev/null" for place in places)
        codes = interns.run_script("ada", f"{script}; true").stdout.decode().split()
        assert len(codes) == len(places)
        assert set(codes) == wanted, dict(zip(places, codes, strict=True))


def test_a_sandbox_sees_only_the_socket_of_its_own_proxy(interns: InternClient) -> None:
    interns.run()
    interns.run("bob")
    assert interns.script_output("ada", "find / -type s 2> /dev/null; true").split() == [
        "/run/egress/proxy.sock"
    ]
    listening = interns.script_output(
        "ada", "cat /proc/net/unix | tail -n +2 | awk '{print $8}' | sort -u"
    )
    assert not [each for each in listening.split() if "interns" in each or "control" in each]


def test_programs_cannot_replace_files_of_the_run_folder(interns: InternClient) -> None:
    intern = interns.run()
    script = """
        for each in proxy.sock ca.pem; do
          rm -f /run/egress/$each; mv /run/egress/$each /tmp; ln -sf /workspace /run/egress/$each
        done
        mv /run/egress /run/other; rm -rf /run/egress /run/tollhouse; mount --bind /tmp /run/egress
    """
    interns.run_script("ada", f"{{ {script} }} 2> /dev/null; rm -f /tmp/proxy.sock /tmp/ca.pem")
    assert way_out(interns) == "200"
    assert interns.healthy(intern)


def test_a_link_in_place_of_the_uploads_folder_is_not_followed(interns: InternClient) -> None:
    intern = interns.run()
    interns.script_output("ada", "rm -rf .intern; ln -s /tmp .intern; ln -s /etc/passwd users")
    assert interns.put_file(intern, "note", b"kept") == 403
    interns.suspend(intern)
    assert interns.run() == intern
    assert interns.put_file(intern, "users", b"kept") == 403
    interns.script_output("ada", "rm .intern users")
    assert interns.put_file(intern, "new", b"kept") == 201
