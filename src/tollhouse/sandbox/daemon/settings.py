"""What the daemon is told when it starts: one line of JSON. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

EGRESS_PORT: Final = 3128
LARGEST_FILE: Final = 4 << 30
INTERACTION_SECONDS: Final = 300
IDLE_SECONDS: Final = 300
MODEL_SECONDS: Final = 300
_MOST_SECONDS: Final = 7 * 24 * 3600
LONGEST_LINE: Final = 1 << 20
"""In bytes."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LARGEST_PORT: Final = 65_535
_NAMES: Final = frozenset(
    (
        "listener",
        "token_sha256",
        "workspace",
        "egress_socket",
        "egress_port",
        "environment",
        "intern",
        "largest_file_bytes",
        "limits_enforced",
        "agent",
    )
)


class BadSettings(Exception):
    """The line is wrong. The text names the field, and holds no value of it."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Of the agent that clients talk to."""

    model: str
    instructions: str = field(repr=False)
    """Of the intern's owner."""
    base_url: str
    """Of an API in the format of chat completions, which has the model."""
    interaction_seconds: float
    """How long a question waits for its answer."""
    idle_seconds: float
    """How long the agent's process stays without a run."""
    model_seconds: float
    """How long the model may be silent."""


_AGENT_NAMES: Final = frozenset(each.name for each in fields_of(AgentSettings))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the daemon is told when it starts."""

    listener: int
    """Descriptor of a socket that listens already."""
    token_sha256: str = field(repr=False)
    """Of the token that every request has to show; lower-case hexadecimal."""
    workspace: str
    """Folder, absolute, as the sandbox sees it."""
    egress_socket: str | None
    """Of the egress proxy; None where there is no way out."""
    egress_port: int
    """Of 127.0.0.1, where programs find the proxy."""
    environment: Mapping[str, str] = field(repr=False)
    """Of the programs that are started here."""
    intern_id: str
    intern_name: str
    largest_file_bytes: int
    """What may be sent as one file."""
    limits_enforced: tuple[str, ...]
    """Names of the limits that the machine makes the sandbox keep."""
    agent: AgentSettings | None
    """None where there is none to talk to."""


def read_settings(line: bytes) -> Settings:
    """Read the line.

    Raises:
        BadSettings: It is not what it has to be.
    """
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        raise BadSettings("the settings are not one line of JSON") from None
    if not isinstance(given, dict):
        raise BadSettings("the settings are no JSON object")
    fields = cast("dict[str, Any]", given)
    if unknown := sorted(fields.keys() - _NAMES):
        raise BadSettings(f"unknown settings: {', '.join(unknown)}")
    egress_socket = fields.get("egress_socket")
    intern = _mapping(fields.get("intern", {}), "intern")
    return Settings(
        listener=_number(fields.get("listener"), "listener", 2**31 - 1),
        token_sha256=_digest(fields.get("token_sha256")),
        workspace=_path(fields.get("workspace"), "workspace"),
        egress_socket=None if egress_socket is None else _path(egress_socket, "egress_socket"),
        egress_port=_number(fields.get("egress_port", EGRESS_PORT), "egress_port", _LARGEST_PORT),
        environment=_mapping(fields.get("environment", {}), "environment"),
        intern_id=intern.get("id", ""),
        intern_name=intern.get("name", ""),
        largest_file_bytes=_number(
            fields.get("largest_file_bytes", LARGEST_FILE), "largest_file_bytes", 2**63 - 1
        ),
        limits_enforced=_texts(fields.get("limits_enforced", []), "limits_enforced"),
        agent=_agent(fields.get("agent")),
    )


def _agent(value: object) -> AgentSettings | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadSettings("agent has to be an object")
    fields = cast("dict[str, Any]", value)
    if unknown := sorted(fields.keys() - _AGENT_NAMES):
        raise BadSettings(f"unknown settings of agent: {', '.join(unknown)}")
    return AgentSettings(
        model=_text(fields.get("model"), "agent.model"),
        instructions=_text(fields.get("instructions", ""), "agent.instructions"),
        base_url=_text(fields.get("base_url"), "agent.base_url"),
        interaction_seconds=_seconds(fields, "interaction_seconds", INTERACTION_SECONDS),
        idle_seconds=_seconds(fields, "idle_seconds", IDLE_SECONDS),
        model_seconds=_seconds(fields, "model_seconds", MODEL_SECONDS),
    )


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise BadSettings(f"{name} has to be a text")
    return value


def _seconds(fields: Mapping[str, Any], name: str, default: float) -> float:
    value = fields.get(name, default)
    if type(value) not in {int, float} or not 0 < value <= _MOST_SECONDS:
        raise BadSettings(f"agent.{name} has to be a number of seconds up to {_MOST_SECONDS}")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise BadSettings("token_sha256 has to be 64 lower-case hexadecimal digits")
    return value


def _path(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise BadSettings(f"{name} has to be an absolute path")
    return value


def _number(value: object, name: str, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise BadSettings(f"{name} has to be a whole number from 0 to {largest}")
    return value


def _texts(value: object, name: str) -> tuple[str, ...]:
    texts = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(each, str) for each in texts):
        raise BadSettings(f"{name} has to be a list of texts")
    return tuple(map(str, texts))


def _mapping(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadSettings(f"{name} has to be an object of texts")
    found = cast("dict[object, object]", value)
    texts: dict[str, str] = {}
    for key, text in found.items():
        # The system's calls take no NUL, and an environment no `=` in a name.
        if not isinstance(key, str) or not isinstance(text, str) or "\0" in key + text:
            raise BadSettings(f"{name} has to be an object of texts")
        if not key or "=" in key:
            raise BadSettings(f"{name} has a name that is empty or holds '='")
        texts[key] = text
    return texts
