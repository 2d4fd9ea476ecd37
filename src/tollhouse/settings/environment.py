"""The environment: which names there are, and what they set.

A setting's name is `TOLLHOUSE_`, its section, two underscores, its field, in capitals. An empty
variable counts as not set. Whatever else starts with `TOLLHOUSE_` is a mistake, except for the
names below and for what a container platform writes about a service called tollhouse.

`OPENAI_API_KEY` and `ANTHROPIC_API_KEY` each add a provider with every model of its price list, but
only where no provider and no model is configured: a key that other programs need must not change
what a configured gateway offers.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tollhouse.settings.description import described
from tollhouse.settings.problems import Location, nearest
from tollhouse.settings.sections import ANTHROPIC_BASE_URL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


PREFIX = "TOLLHOUSE_"
TEST_PREFIX = "TOLLHOUSE_TEST_"
CONFIG = "TOLLHOUSE_CONFIG"
DATA_DIR = "TOLLHOUSE_DATA_DIR"
BASE_URL = "TOLLHOUSE_BASE_URL"
ACCOUNT = PREFIX + "ACCOUNT"
API_KEY = "TOLLHOUSE_API_KEY"

_STRUCTURED = frozenset(("guardrails", "providers", "models"))
_SERVICE_HOST = re.compile(r"(TOLLHOUSE(?:_[A-Z0-9_]+)?)_SERVICE_HOST")


class EnvironmentName(NamedTuple):
    """One variable that Tollhouse reads."""

    name: str
    type: str
    default: str
    description: str


OTHER_NAMES: Sequence[EnvironmentName] = (
    EnvironmentName(
        CONFIG,
        "path",
        "tollhouse.yaml in the data folder, if it is there",
        "The configuration file. In the environment only, or as --config.",
    ),
    EnvironmentName(
        BASE_URL, "text", "none", "For the command line: the address of a remote server to talk to."
    ),
    EnvironmentName(
        API_KEY,
        "text",
        "none",
        "For the command line: the key to show to a server: an API key for estimates, batches, "
        "interns and secrets, a management key for everything else.",
    ),
    EnvironmentName(
        ACCOUNT,
        "text",
        "none",
        "For the command line: the account that is meant where none is named, by id or name.",
    ),
)
"""Variables that are no setting."""


class Override(NamedTuple):
    """A value that a variable or a flag sets."""

    name: str
    location: Location
    value: object


class Environment(NamedTuple):
    """The part of the environment that is about Tollhouse."""

    overrides: tuple[Override, ...]
    problems: tuple[str, ...]
    """One line each; unknown names among them."""


@cache
def setting_names() -> Mapping[str, Location]:
    """Return the environment name of every setting that has one."""
    return {
        environment_name(setting.location): setting.location
        for setting in described()
        if setting.in_environment
    }


def environment_name(location: Location) -> str:
    """Return the name that a setting has in the environment."""
    return PREFIX + "__".join(str(step).upper() for step in location)


def environment_names() -> list[EnvironmentName]:
    """Return every variable that may be set, in the order of the sections."""
    settings = [
        EnvironmentName(
            environment_name(setting.location),
            f"{setting.type} in JSON" if setting.type == "list" else setting.type,
            setting.default,
            setting.description,
        )
        for setting in described()
        if setting.in_environment
    ]
    return [*settings, *OTHER_NAMES]


def read_environment(env: Mapping[str, str], mentioned: frozenset[str]) -> Environment:
    """Return what the environment sets, and what in it is a mistake.

    Names that the configuration file has `mentioned` are none, whatever they are.
    """
    settings = setting_names()
    overrides: list[Override] = []
    problems: list[str] = []
    for name in sorted(name for name in env if name.startswith(PREFIX)):
        if name in settings:
            location = settings[name]
            try:
                if env[name].strip():
                    overrides.append(Override(name, location, _value(location, env[name])))
            except ValueError as error:
                problems.append(f"{name}: {error}")
        elif not (name in mentioned or _is_known(name, env)):
            near = nearest(name, (*settings, *(other.name for other in OTHER_NAMES)))
            problems.append(f"{name}: there is no such variable; the nearest is {near}")
    return Environment(tuple(overrides), tuple(problems))


def _value(location: Location, text: str) -> object:
    if location[0] not in _STRUCTURED:
        return text
    try:
        return cast("object", json.loads(text, object_pairs_hook=_without_repetition))
    except json.JSONDecodeError as error:
        message = f"must be a list in JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        raise ValueError(message) from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice in one object")
    return fields


def _is_known(name: str, env: Mapping[str, str]) -> bool:
    if any(name == other.name for other in OTHER_NAMES) or name.startswith(TEST_PREFIX):
        return True
    return any(name.startswith(links) for links in _service_links(env))


def _service_links(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the beginnings of names that a platform made up.

    Kubernetes tells every container about each service of its namespace; a service called
    `tollhouse` gives TOLLHOUSE_SERVICE_HOST, TOLLHOUSE_SERVICE_PORT_HTTP, TOLLHOUSE_PORT, ...

    Source: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
    """
    for name in env:
        service = _SERVICE_HOST.fullmatch(name)
        if service and f"{service[1]}_SERVICE_PORT" in env:
            yield f"{service[1]}_SERVICE_"
            yield f"{service[1]}_PORT"


OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
_PROVIDERS: Final[Mapping[str, Mapping[str, object]]] = {
    "OPENAI_API_KEY": {
        "slug": "openai",
        "name": "OpenAI",
        "kind": "openai_compatible",
        "base_url": OPENAI_BASE_URL,
    },
    "ANTHROPIC_API_KEY": {
        "slug": "anthropic",
        "name": "Anthropic",
        "kind": "anthropic",
        "base_url": ANTHROPIC_BASE_URL,
    },
}


def providers_of_keys(env: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the providers whose key is in the environment, as a configuration would name them."""
    return [
        {**provider, "api_key": env[name].strip(), "list_models": True}
        for name, provider in _PROVIDERS.items()
        if env.get(name, "").strip()
    ]
