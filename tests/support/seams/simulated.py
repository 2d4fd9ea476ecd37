"""The simulated provider, as far as its tests use it: a chat and what is answered, a schema, texts.

opened(body, model) -> a reply, to be read whole or streamed
sample(schema)      -> a value of a JSON schema
vectors(body)       -> the reply to a request for embeddings
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from tests.support.seams import names
from tests.support.seams.formats import adapter
from tollhouse.inference.ports import ProviderCall
from tollhouse.inference.providers.simulated import replies
from tollhouse.inference.providers.simulated.models import SLUG, models
from tollhouse.inference.providers.simulated.provider import (
    NAME,
    SimulatedProvider,
    SimulatedReply,
    embeddings,
)
from tollhouse.inference.types import Dialect

__getattr__ = names(
    "tollhouse",
    {
        "inference.providers.simulated.provider": "DIMENSIONS",
        "inference.providers.simulated.request": "InvalidSimulatedRequest",
        "kernel.errors": "ProviderFailure ProviderRefused status_of",
    },
)


def new_provider() -> SimulatedProvider:
    return SimulatedProvider(NAME, "cancel")


_PROVIDER = new_provider()


async def opened(
    body: dict[str, Any],
    model: str = "echo",
    provider: SimulatedProvider = _PROVIDER,
    owner: str = "",
) -> SimulatedReply:
    """Ask a model in a chat.

    Raises:
        ProviderFailure: It refuses, or it is one that fails.
    """
    [endpoint] = [each.endpoints[0] for each in models() if each.id == f"{SLUG}/{model}"]
    sent = adapter("chat", "chat", json.dumps(body).encode()).render_request(endpoint)
    call = ProviderCall(endpoint, Dialect.CHAT, bool(body.get("stream")), sent, owner=owner)
    reply = await provider.open(call)
    assert isinstance(reply, SimulatedReply)
    return reply


def sample(schema: object) -> Any:
    """Return a value of a JSON schema."""
    return replies.sample(Raw(json.dumps(schema).encode()))


def sample_object(schema: bytes) -> Any:
    """Return an object of a JSON schema, whatever that says."""
    return replies.sample_object(Raw(schema))


def vectors(body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request for embeddings; raises `InvalidSimulatedRequest`."""
    return dict(embeddings("embedding", json.dumps(body).encode()))
