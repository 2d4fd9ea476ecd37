"""A secret that an agent uses: its value reaches the host that it is for, and nothing else.

    daemon, agent ──> proxy (puts it in) ──> the host
         └──> gateway ──> the model's provider

The provider is a stand-in that keeps every prompt. Each place is shown to be looked at: where the
value is not, the secret's name is, or what the agent has put there.
"""

import json
from collections.abc import Generator

import pytest

from tests.acceptance.checked_server import start_checked_server
from tests.acceptance.egress_hosts import BOUND, EgressHosts
from tests.acceptance.intern_conversation import Conversation
from tests.support.canaries import PLANTED, Scanner
from tests.support.intern_client import InternClient, is_bubblewrap, memory_of, sandbox_processes
from tests.support.model_server import FakeModel, call, run_model, says

pytestmark = pytest.mark.sandbox
VALUE = PLANTED[49]
NAME = b"{{secret:token}}"
MASKED = "Bearer " + "*" * len(VALUE)
"""A response with the value, as the proxy redacts it."""
HEADER = f"Authorization: Bearer {NAME.decode()}"
PROVIDER = """\
providers:
  - slug: recorder
    name: Recorder
    kind: openai_compatible
    base_url: {url}
models:
  - id: recorder/model
    context_length: 100000
    endpoints:
      - {{provider: recorder, model: any, pricing: {{prompt: "0.000001", completion: "0.000002"}}}}
"""


class UsedSecret:
    """An intern whose agent has sent a secret with each tool that can."""

    def __init__(self, interns: InternClient, hosts: EgressHosts, model: FakeModel) -> None:
        self.interns = interns
        self.hosts = hosts
        self.model = model
        interns.request("PUT", "/vault/secrets/token", {"value": VALUE, "hosts": [BOUND]})
        intern = interns.create()
        assert interns.request(
            "PATCH", f"/interns/{intern}", {"model": "recorder/model"}
        ).is_success
        self.intern = interns.run()
        url = hosts.url(BOUND)
        headers = {"Authorization": f"Bearer {NAME.decode()}"}
        curl = f"curl -sS -D /tmp/head -H '{HEADER}' {url} | tee answer.json"
        model.turns = [
            says(call("http_request", url=url, headers=headers)),
            says(call("shell", command=curl, network=True)),
            says("Done."),
        ]
        self.conversation = Conversation(interns, self.intern)
        assert self.conversation.send("Use the token.").finish == "stop"
        self.memory = {
            command: b"\0".join(memory_of(pid))
            for pid, command in sandbox_processes(interns.server.data_dir).items()
            if not is_bubblewrap(command)
        }

    def inside(self, script: str) -> bytes:
        """Return what a shell of the intern prints, as root of nothing."""
        done = self.interns.run_script("ada", script)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts) -> Generator[UsedSecret]:
    with run_model() as model:
        config = hosts.config(PROVIDER.format(url=model.url))
        with start_checked_server(tmp_path_factory.mktemp("i"), config=config) as server:
            interns = InternClient(server)
            yield UsedSecret(interns, hosts, model)
            interns.delete_all()


def leaks(content: bytes) -> set[tuple[str, str]]:
    return Scanner([VALUE]).in_bytes("there", content)


def test_the_host_gets_the_value_from_each_tool(used: UsedSecret) -> None:
    assert used.hosts.authorizations(BOUND) == [f"Bearer {VALUE}"] * 2


def test_no_prompt_to_the_model_holds_the_value(used: UsedSecret) -> None:
    prompts = json.dumps(used.model.requests).encode()
    assert len(used.model.requests) == 3
    results = [each for each in used.model.messages() if each["role"] == "tool"]
    assert [MASKED in str(each["content"]) for each in results] == [True, True]
    assert leaks(prompts) == set()


def test_the_model_is_told_of_the_secret_and_its_host(used: UsedSecret) -> None:
    told = str(used.model.requests[0]["messages"])
    assert f"- {NAME.decode()} for {BOUND}" in told


def test_the_intern_can_read_what_is_its_own_and_nothing_else(used: UsedSecret) -> None:
    own = f"/interns/{used.intern}"
    paths = {
        "/key": 200,
        own: 200,
        f"/vault{own}/secrets": 200,
        f"/vault{own}/effective-secrets?limit=5": 200,
        "/interns": 404,
        "/vault/secrets": 404,
        f"{own}/daemon": 404,
        f"/interns/{'0' * 8}-0000-4000-8000-{'0' * 12}": 404,
    }
    ask = "curl -s -o /dev/null -w '%{{http_code}} ' 'http://gateway.internal/v1{}'"
    found = used.inside("; ".join(ask.format(path) for path in paths))
    assert [int(each) for each in found.split()] == list(paths.values())
    deleting = used.inside(f"curl -s -X DELETE http://gateway.internal/v1{own}")
    assert b"what is an intern's own" in deleting


def test_no_chat_stream_holds_the_value(used: UsedSecret) -> None:
    assert b"api.bound.example" in used.conversation.received
    assert leaks(used.conversation.received) == set()


def test_the_event_log_does_not_hold_the_value(used: UsedSecret) -> None:
    path = f"/sessions/{used.conversation.session}/events?follow=false"
    told = used.interns.daemon(used.intern, "GET", path).content
    assert b"run.ended" in told
    assert leaks(told) == set()
    database = used.inside("find .intern -type f -exec cat {} +")
    assert NAME in database
    assert leaks(database) == set()


def test_no_file_of_the_intern_holds_the_value(used: UsedSecret) -> None:
    # -xdev: the interpreter is mounted there where it lies below /tmp outside, too.
    writable = "find /workspace /tmp /dev/shm -xdev -type f"
    assert b"/tmp/head" in used.inside(writable)
    files = used.inside(f"{writable} -exec cat {{}} +")
    assert NAME in files
    assert b"200 OK" in files
    assert leaks(files) == set()


def test_no_environment_holds_the_value(used: UsedSecret) -> None:
    environment = used.inside("env; cat /proc/[0-9]*/environ")
    assert b"http_proxy" in environment.lower()
    assert leaks(environment) == set()


@pytest.mark.root  # who alone may look into a sandbox's processes
@pytest.mark.parametrize("program", ["sandbox.daemon", "sandbox.agent"])
def test_the_memory_of_daemon_and_agent_does_not_hold_the_value(
    used: UsedSecret, program: str
) -> None:
    [memory] = [found for command, found in used.memory.items() if program in command]
    assert NAME.strip(b"{}") in memory
    assert leaks(memory) == set()
