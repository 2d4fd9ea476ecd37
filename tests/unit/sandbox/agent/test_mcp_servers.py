"""The file that names MCP servers."""

from __future__ import annotations

import json

import pytest
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.tools.mcp_servers import read_configs


def read(**servers: object) -> dict[str, object]:
    return dict(read_configs(json.dumps({"mcpServers": servers}).encode()))


def test_servers_are_programs_or_addresses() -> None:
    found = read_configs(
        json.dumps(
            {
                "mcpServers": {
                    "files": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}},
                    "issues": {"type": "http", "url": "http://a/", "headers": {"B": "c"}},
                    "older": {"type": "sse", "url": "http://a/"},
                },
                "other": 1,
            }
        ).encode()
    )
    assert found["files"].where == "npx -y x"
    assert found["files"].environment == {"A": "b"}
    assert found["issues"].where == "http://a/"
    assert found["issues"].headers == {"B": "c"}
    assert [each.is_sse for each in found.values()] == [False, False, True]
    assert len({each.digest for each in found.values()}) == 3


def test_another_command_is_another_server() -> None:
    one, two = (read(files={"command": "a", "env": {"A": text}}) for text in "bc")
    assert one != two
    assert one["files"].digest != two["files"].digest  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"mcpServers": []}',
        '{"mcpServers": {"a": {}}}',
        '{"mcpServers": {"a": {"command": 5}}}',
        '{"mcpServers": {"a": {"command": "b\\u0000"}}}',
        '{"mcpServers": {"a": {"command": "b", "args": "c"}, "b": 5}}',
        '{"mcpServers": {"a": {"command": "b", "env": []}}}',
        '{"mcpServers": {"a": {"url": 5}}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:60] or "nothing",
)
def test_a_file_that_is_none_is_an_error_to_the_model(text: str) -> None:
    with pytest.raises(ToolFailed, match="cannot be understood"):
        read_configs(text.encode())


def test_secrets_of_servers_are_not_shown() -> None:
    shown = repr(read(a={"url": "http://a/", "headers": {"A": "canary"}}))
    assert "canary" not in shown
