"""The runner of client scripts: what it hands over, and what it says when a script fails."""

import os
from pathlib import Path

import pytest

from tests.support.client_process import ClientFailedError, run_client

pytestmark = pytest.mark.contract


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["openai", "openrouter"])
def test_each_library_imports_in_its_own_environment(name: str, tmp_path: Path) -> None:
    printed = run_client(
        name,
        script(
            tmp_path,
            "import importlib.metadata, json, sys\n"
            f"import {name}\n"
            f"version = importlib.metadata.version('{name}')\n"
            "print(json.dumps({'version': version, 'prefix': sys.prefix}))\n",
        ),
    )
    assert Path(printed["prefix"]).name == name
    locked = Path(__file__).parent / "clients" / name / "requirements.txt"
    assert f"\n{name}=={printed['version']} " in "\n" + locked.read_text()


def test_script_sees_the_given_environment_and_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "ours")
    path = script(tmp_path, "import json, os; print(json.dumps(dict(os.environ)))")
    seen = run_client("openai", path, env={"GIVEN": "1"})
    assert seen["GIVEN"] == "1"
    assert seen["PATH"] == os.environ["PATH"]
    assert "OPENAI_API_KEY" not in seen


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys; print('so far'); sys.exit('the reason')", "ended with 1"),
        ("import sys; print('so far'); print('the reason', file=sys.stderr)", "did not print JSON"),
        (
            """
import sys, time
print('so far', flush=True)
print('the reason', file=sys.stderr, flush=True)
time.sleep(60)
""",
            "did not end within 2",
        ),
    ],
    ids=["exit code", "no json", "too slow"],
)
def test_failure_shows_what_the_script_printed(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ClientFailedError) as failed:
        run_client("openai", script(tmp_path, text), timeout=2)
    message = str(failed.value)
    assert says in message
    assert "so far" in message
    assert "the reason" in message


def test_unknown_client_is_named() -> None:
    with pytest.raises(ClientFailedError, match="client nobody has no environment; `make clients`"):
        run_client("nobody", "check.py")
