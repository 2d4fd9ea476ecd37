"""Codex, Claude Code and the AI SDK from npm, unmodified: three turns with tools on each dialect.

They see a home folder of their own, and no network: a request to another host fails.
"""

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from tests.acceptance.wire import DIALECTS, Wire, config
from tests.contract.agent_turns import FINAL, offered, proofs, results, turns
from tests.support.client_process import CLIENTS, NODE, client_environment
from tests.support.scripted_providers import ScriptedProviders
from tests.support.server_process import start_server

pytestmark = [pytest.mark.contract, pytest.mark.soak]

SDK_LOOP = (CLIENTS / "agents" / "sdk_loop.mjs").read_text()
AGENTS_FILE = CLIENTS / "agents" / "agents.yaml"
AGENTS: dict[str, Any] = yaml.safe_load(AGENTS_FILE.read_text())
MORE = "".join(
    f"  - id: {each}/gpt-5.6-sol\n    context_length: 200000\n    endpoints:\n"
    f"      - {{provider: {each}, model: m, pricing: {{prompt: '0', completion: '0'}}}}\n"
    for each in DIALECTS
)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
VARIANTS = [(agent, each) for agent in AGENTS for each in AGENTS[agent]["variants"]]
NOT_STORED = {"store": False}
"""Without it the SDK's `openai` provider refers to earlier items, as if they were stored."""
PROOFS_KEPT = {"openai chat": (), "compatible": ("chat",)}
"""What the others send back of every dialect's thoughts, these do not: chat has no field for it."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Generator[Wire]:
    """A gateway before providers that answer by what they are asked."""
    folder = tmp_path_factory.mktemp("agents")
    with (
        ScriptedProviders() as providers,
        start_server(folder, config=config(providers) + MORE) as server,
    ):
        yield Wire(server, providers)


def run(
    wire: Wire, agent: str, variant: str, dialect: str, folder: Path, options: Any = NOT_STORED
) -> tuple[int, str, str]:
    """Run an agent against a provider that calls its tools: exit code, output and errors."""
    filled = {
        "folder": str(folder),
        "packages": str(client_environment("agents") / "node_modules"),
        "origin": wire.server.origin,
        "key": wire.server.api_key,
        "prompt": "Write a note",
        "variant": variant.replace("${dialect}", dialect),
        "dialect": dialect,
        "options": json.dumps({"openai": options}),
    }
    row = yaml.safe_load(Template(AGENTS_FILE.read_text()).safe_substitute(filled))[agent]
    command = [SDK_LOOP if each == "sdk_loop" else each for each in row["run"]]
    wire.providers.say(dialect, turns(dialect, row["calls"]))
    env = {name: "http://127.0.0.1:9" for each in PROXIES for name in (each, each.lower())}
    env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [NODE, *command],
        env=env | {"HOME": str(folder)} | row["env"],
        cwd=row.get("cwd", folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=110,
        check=False,
    )
    return done.returncode, done.stdout.decode().strip(), done.stderr.decode()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("agent", "variant"), VARIANTS)
def test_an_agent_runs_two_tools_and_shows_the_text(
    agent: str, variant: str, dialect: str, wire: Wire, tmp_path: Path
) -> None:
    code, shown, errors = run(wire, agent, variant, dialect, tmp_path)
    assert (code, shown) == (0, FINAL), errors
    assert (tmp_path / "note.txt").read_text().strip() == "forty-two"
    asked = [body for body in wire.providers.asked(dialect) if offered(body)]
    seen = [results(dialect, body) for body in asked]
    assert [list(each) for each in seen] == [[], ["call_0"], ["call_0", "call_1"]]
    assert "forty-two" in seen[-1]["call_1"]
    kept = PROOFS_KEPT.get(variant.removesuffix(" streamed"), DIALECTS)
    assert proofs(asked[-1]) == (["proof-0", "proof-1"] if dialect in kept else [])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("options", "words", "asked"),
    [({}, "`store`", 1), ({"previousResponseId": "resp_1"}, "previous_response_id: ", 0)],
    ids=["items", "previous response"],
)
def test_the_ai_sdk_is_told_that_nothing_is_stored(
    options: Any, words: str, asked: int, dialect: str, wire: Wire, tmp_path: Path
) -> None:
    code, shown, _ = run(wire, "ai sdk", "openai responses", dialect, tmp_path, options)
    error = json.loads(shown)
    assert (code, error["statusCode"], error["isRetryable"]) == (1, 400, False)
    assert words in error["message"]
    assert len(wire.providers.asked(dialect)) == asked
