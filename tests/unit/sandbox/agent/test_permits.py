"""What is asked about, and what the model is told first."""

from __future__ import annotations

import pytest

from tollhouse.sandbox.agent.instructions import instructions
from tollhouse.sandbox.agent.permits import Permits, Verdict, question


def test_whoever_drives_by_itself_is_asked_nothing() -> None:
    assert Permits(manual=False, verdicts={"shell": "reject"}).verdict("shell") is Verdict.ALLOW


@pytest.mark.parametrize(
    ("scope", "verdict"), [("a", Verdict.ALLOW), ("b", Verdict.REJECT), ("c", Verdict.ASK)]
)
def test_a_manual_run_asks_what_is_not_decided(scope: str, verdict: Verdict) -> None:
    assert Permits(manual=True, verdicts={"a": "allow", "b": "reject"}).verdict(scope) is verdict


def test_what_is_asked_has_an_end() -> None:
    asked = question("shell", "x" * 10_000)
    assert len(asked["operation"]) < 4100
    assert asked["operation"].endswith("(6000 characters more)")


def test_the_digest_is_of_all_that_is_asked() -> None:
    asked = [
        question(scope, operation)["digest"]
        for scope, operation in (
            ("shell", "x" * 10_000),
            ("shell", "x" * 9_999 + "y"),
            ("http_request", "x" * 10_000),
            ("shel", "l" + "x" * 10_000),
        )
    ]
    assert len({*asked}) == 4


def test_instructions_name_servers_and_end_with_the_owners() -> None:
    told = instructions("/workspace", "Be brief.", manual=True, servers=["files", "issues"])
    assert "/workspace" in told
    assert "{{secret:name}}" in told
    assert "files, issues" in told
    assert "network=true" in told
    assert told.endswith("\n\nBe brief.")


def test_instructions_say_nothing_of_what_is_not_there() -> None:
    told = instructions("/workspace", " ", manual=False, servers=[])
    assert "MCP" not in told
    assert "network=true" not in told
    assert told == told.strip()
