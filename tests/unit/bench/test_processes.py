"""What the bench's programs inherit."""

import os
import sys

import pytest

from bench.processes import Child

SAY = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"


def test_a_program_gets_none_of_the_settings_that_the_shell_happens_to_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOLLHOUSE_REQUIRE_SANDBOX", "1")
    given = {"TOLLHOUSE_SERVER__CORE_DUMPS": "true"}
    with Child("the program", [sys.executable, "-c", SAY], environment=given) as child:
        said = child.receive_object()
    assert said["PATH"] == os.environ["PATH"]
    settings = {name: value for name, value in said.items() if name.startswith("TOLLHOUSE_")}
    assert settings == given
