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
MOST_INPUT: Final = 32_000
"""Characters of a prompt; the gateway and the command line know it, too."""
LONGEST_NAME: Final = 256
"""Characters of a session's name; the gateway and the command line know it, too."""
_MOST_SECONDS: Final = 7 * 24 * 3600
LONGEST_LINE: Final = 1 << 20
"""In bytes."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LARGEST_PORT: Final = 65_535


class InvalidSettings(Exception):
    """The line is wrong. The text names the field, without its value."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the daemon is told of its agent."""

    model: str
    instructions: str = field(repr=False)
    """From the intern's owner, for the model."""
    base_url: str
    """Of an API in the format of chat completions, which has the model."""
    interaction_seconds: float
    """How long a question waits for its answer."""
    idle_seconds: float
    """How long the agent's process lives without a run."""
    model_seconds: float
    """How long the model may be silent."""


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """What the daemon is told when it starts."""

    listener: int
    """Descriptor of a socket that listens already."""
    token_sha256: str = field(repr=False)
    """Of the token that every request needs; lower-case hexadecimal."""
    workspace: str
    """Folder, absolute, as the sandbox sees it."""
    egress_socket: str | None
    """Path of the egress proxy's socket; None where there is no way out."""
    egress_port: int
    """On 127.0.0.1, where programs find the proxy."""
    environment: Mapping[str, str] = field(repr=False)
    """Variables of the programs that are started here."""
    intern_id: str
    intern_name: str
    largest_file_bytes: int
    """Of the largest upload."""
    limits_enforced: tuple[str, ...]
    """Names of the limits that the machine enforces on the sandbox."""
    agent: AgentSettings | None


_AGENT_NAMES: Final = {each.name for each in fields_of(AgentSettings)}
_NAMES: Final = {each.name for each in fields_of(DaemonSettings)} - {"intern_id", "intern_name"}


def read_settings(line: bytes) -> DaemonSettings:
    """Read the line; raise `InvalidSettings` for what is wrong, missing or unknown."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidSettings("the settings are not one line of JSON") from None
    if not isinstance(given, dict):
        raise InvalidSettings("the settings are no JSON object")
    fields = cast("dict[str, Any]", given)
    if unknown := sorted(fields.keys() - _NAMES - {"intern"}):
        raise InvalidSettings(f"unknown settings: {', '.join(unknown)}")
    intern = _mapping(fields, "intern")
    no_egress = fields.get("egress_socket") is None
    return DaemonSettings(
        listener=_number(fields, "listener", 2**31 - 1),
        token_sha256=_digest(fields.get("token_sha256")),
        workspace=_path(fields, "workspace"),
        egress_socket=None if no_egress else _path(fields, "egress_socket"),
        egress_port=_number(fields, "egress_port", _LARGEST_PORT, EGRESS_PORT),
        environment=_mapping(fields, "environment"),
        intern_id=intern.get("id", ""),
        intern_name=intern.get("name", ""),
        largest_file_bytes=_number(fields, "largest_file_bytes", 2**63 - 1, LARGEST_FILE),
        limits_enforced=_texts(fields, "limits_enforced"),
        agent=_agent(fields.get("agent")),
    )


def _agent(value: object) -> AgentSettings | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidSettings("agent has to be an object")
    fields = cast("dict[str, Any]", value)
    if unknown := sorted(fields.keys() - _AGENT_NAMES):
        raise InvalidSettings(f"unknown settings of agent: {', '.join(unknown)}")
    texts = {"instructions": "", **fields}
    for name in ("model", "instructions", "base_url"):
        if not isinstance(texts.get(name), str):
            raise InvalidSettings(f"agent.{name} has to be a text")
    return AgentSettings(
        model=texts["model"],
        instructions=texts["instructions"],
        base_url=texts["base_url"],
        interaction_seconds=_seconds(fields, "interaction_seconds", INTERACTION_SECONDS),
        idle_seconds=_seconds(fields, "idle_seconds", IDLE_SECONDS),
        model_seconds=_seconds(fields, "model_seconds", MODEL_SECONDS),
    )


def _seconds(fields: Mapping[str, Any], name: str, default: float) -> float:
    value = fields.get(name, default)
    if type(value) not in {int, float} or not 0 < value <= _MOST_SECONDS:
        raise InvalidSettings(f"agent.{name} has to be a number of seconds up to {_MOST_SECONDS}")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise InvalidSettings("token_sha256 has to be 64 lower-case hexadecimal digits")
    return value


def _path(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise InvalidSettings(f"{name} has to be an absolute path")
    return value


def _number(
    fields: Mapping[str, object], name: str, largest: int, default: int | None = None
) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 0 <= value <= largest:
        raise InvalidSettings(f"{name} has to be a whole number from 0 to {largest}")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name, [])
    texts = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(each, str) for each in texts):
        raise InvalidSettings(f"{name} has to be a list of texts")
    return tuple(map(str, texts))


def _mapping(fields: Mapping[str, Any], name: str) -> dict[str, str]:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise InvalidSettings(f"{name} has to be an object of texts")
    # The system's calls take no NUL, and an environment no `=` in a name.
    for key, text in cast("dict[str, object]", value).items():
        if not isinstance(text, str) or "\0" in key + text:
            raise InvalidSettings(f"{name} has to be an object of texts")
        if not key or "=" in key:
            raise InvalidSettings(f"{name} has a name that is empty or holds '='")
    return cast("dict[str, str]", value)
