"""Model servers on this machine, asked once at the start if `discover_local_models` says so.

Every known server lists its models at `GET /v1/models` of its usual port. Those that answer within
a fifth of a second join the settings, as a provider each, with models that cost nothing.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tollhouse.settings.sections import EndpointSettings, ModelSettings, ProviderSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence


SECONDS: Final = 0.2
_LARGEST_LIST: Final = 4 * 1024 * 1024
_LONGEST_NAME: Final = 200
_USUAL_CONTEXT: Final = 8192
"""Where a server does not say how much its model reads."""
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9~._:@+-]")


class LocalServer(NamedTuple):
    """A kind of model server, and where it usually listens."""

    slug: str
    name: str
    port: int


SERVERS: Final = (
    LocalServer("ollama", "Ollama", 11434),
    LocalServer("vllm", "vLLM", 8000),
    LocalServer("lmstudio", "LM Studio", 1234),
    LocalServer("llamacpp", "llama.cpp", 8081),
)


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    """vLLM's own."""


class _List(msgspec.Struct):
    data: list[_Model]


_list = msgspec.json.Decoder(_List)


def with_local_models(settings: Settings, servers: Sequence[LocalServer] = SERVERS) -> Settings:
    """Return the settings, with the models of the servers that answer.

    A configured provider with the same slug stays as it is.
    """
    configured = {provider.slug for provider in settings.providers}
    asked = [server for server in servers if server.slug not in configured]
    with ThreadPoolExecutor(max_workers=max(1, len(asked))) as threads:
        answers = list(threads.map(_models, asked))
    found = [(server, models) for server, models in zip(asked, answers, strict=True) if models]
    providers = [_provider(server) for server, _ in found]
    named = ((server, model) for server, listed in found for model in listed)
    models = [
        _settings(server, model) for server, model in named if 0 < len(model.id) <= _LONGEST_NAME
    ]
    return settings.model_copy(
        update={
            "providers": (*settings.providers, *providers),
            "models": (*settings.models, *models),
        }
    )


def _models(server: LocalServer) -> list[_Model]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    try:
        connection.request("GET", "/v1/models")
        return _list.decode(connection.getresponse().read(_LARGEST_LIST)).data
    except (OSError, HTTPException, ValueError, RecursionError):
        # Nobody is there, or somebody else.
        return []
    finally:
        connection.close()


def _provider(server: LocalServer) -> ProviderSettings:
    return ProviderSettings(
        slug=server.slug,
        name=server.name,
        kind="openai_compatible",
        base_url=f"http://127.0.0.1:{server.port}/v1",
        idempotent=True,
        keeps_data=False,
    )


def _settings(server: LocalServer, model: _Model) -> ModelSettings:
    return ModelSettings(
        id=f"{server.slug}/{_NOT_IN_IDS.sub('-', model.id)}",
        name=f"{server.name}: {model.id}",
        context_length=model.max_model_len or _USUAL_CONTEXT,
        endpoints=(EndpointSettings(provider=server.slug, model=model.id, pricing="free"),),
    )
