"""The line that the daemon is told first."""

from __future__ import annotations

import json

import pytest

from tollhouse.sandbox.daemon.sessions.endpoints import read_answer_request, read_run_request
from tollhouse.sandbox.daemon.settings import InvalidSettings, read_settings

LEAST = {"listener": 3, "token_sha256": "0" * 64, "workspace": "/workspace"}


def line(**fields: object) -> bytes:
    return json.dumps({**LEAST, **fields}).encode()


def test_what_need_not_be_said_has_a_default() -> None:
    settings = read_settings(line())
    assert settings.egress_socket is None
    assert settings.egress_port == 3128
    assert settings.largest_file_bytes == 4 << 30
    assert settings.environment == {}


def test_everything_can_be_said() -> None:
    settings = read_settings(
        line(
            egress_socket="/run/egress/proxy.sock",
            egress_port=4000,
            environment={"A": "b"},
            intern={"id": "1", "name": "ada"},
            largest_file_bytes=5,
            agent={"model": "a/b", "base_url": "http://a/", "idle_seconds": 0.5},
        )
    )
    assert settings.egress_socket == "/run/egress/proxy.sock"
    assert settings.egress_port == 4000
    assert settings.environment == {"A": "b"}
    assert (settings.intern_id, settings.intern_name) == ("1", "ada")
    assert settings.largest_file_bytes == 5
    assert settings.agent is not None
    assert (settings.agent.model, settings.agent.base_url) == ("a/b", "http://a/")
    assert (settings.agent.idle_seconds, settings.agent.interaction_seconds) == (0.5, 300)


@pytest.mark.parametrize(
    "fields",
    [
        {"listener": "3"},
        {"listener": True},
        {"token_sha256": "A" * 64},
        {"workspace": "relative"},
        {"workspace": "/a\0b"},
        {"egress_socket": 5},
        {"egress_port": 65_536},
        {"environment": {"A": 1}},
        {"environment": {"A=B": "c"}},
        {"environment": {"A": "b\0"}},
        {"environment": []},
        {"intern": None},
        {"more": 1},
        {"agent": []},
        {"agent": {}},
        {"agent": {"model": "a/b"}},
        {"agent": {"model": 5, "base_url": "http://a/"}},
        {"agent": {"model": "a/b", "base_url": "http://a/", "key": "b"}},
        {"agent": {"model": "a/b", "base_url": "http://a/", "idle_seconds": 0}},
        {"agent": {"model": "a/b", "base_url": "http://a/", "idle_seconds": True}},
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings):
        read_settings(line(**fields))


def test_what_is_refused_is_not_repeated() -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_settings(line(token_sha256="canary", environment={"canary": 1}))
    assert "canary" not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    agent = {"model": "a/b", "base_url": "http://a/", "instructions": "canary"}
    settings = read_settings(line(environment={"A": "canary"}, agent=agent))
    assert "canary" not in repr(settings)
    run = read_run_request(b'{"input": "canary"}')
    answer = read_answer_request(b'{"interaction": "i", "answer": "canary"}')
    assert "canary" not in repr((run, answer))
    assert "0000" not in repr(settings)
