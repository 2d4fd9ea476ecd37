"""What is asked about, and what the model is told first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tollhouse.sandbox.agent.runner import instructions
from tollhouse.sandbox.agent.tools.context import PermissionVerdict, ToolContext, permission_request
from tollhouse.sandbox.agent.tools.mcp_servers import McpServers


def context(*, manual: bool, verdicts: dict[str, str]) -> ToolContext:
    return ToolContext(Path(), {}, manual, verdicts, McpServers(Path(), {}))


def test_whoever_drives_by_itself_is_asked_nothing() -> None:
    assert (
        context(manual=False, verdicts={"shell": "reject"}).verdict("shell")
        is PermissionVerdict.ALLOW
    )


@pytest.mark.parametrize(
    ("scope", "verdict"),
    [("a", PermissionVerdict.ALLOW), ("b", PermissionVerdict.REJECT), ("c", PermissionVerdict.ASK)],
)
def test_a_manual_run_asks_what_is_not_decided(scope: str, verdict: PermissionVerdict) -> None:
    assert context(manual=True, verdicts={"a": "allow", "b": "reject"}).verdict(scope) is verdict


def test_what_is_asked_has_an_end() -> None:
    asked = permission_request("shell", "x" * 10_000)
    assert len(asked["operation"]) < 4100
    assert asked["operation"].endswith("(6000 characters more)")


def test_the_digest_is_of_all_that_is_asked() -> None:
    asked = [
        permission_request(scope, operation)["digest"]
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
