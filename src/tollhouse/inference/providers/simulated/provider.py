"""The simulated provider: deterministic replies, and faults on request.

It speaks a provider's dialects to the pipeline, so that every reply takes the way that a real
provider's reply takes.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tollhouse.inference.providers.failures import failure
from tollhouse.inference.providers.simulated import reply
from tollhouse.inference.providers.simulated.embedding import embeddings
from tollhouse.inference.providers.simulated.models import BEHAVIOURS, Behaviour
from tollhouse.inference.providers.simulated.request import NotUnderstood
from tollhouse.inference.providers.simulated.script import Script, script
from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import ProviderRefused, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from tollhouse.inference.providers.base import ProviderCall

NAME: Final = "Simulated"
_PIECES_BEFORE_FAILURE = 2
_BAD_GATEWAY = 502


class SimulatedProvider:
    """Answers without a network."""

    dialects: Collection[Dialect] = frozenset((Dialect.CHAT, Dialect.EMBEDDINGS))

    def __init__(self, name: str, on_disconnect: Literal["cancel", "drain"]) -> None:
        """Take the settings that every provider has."""
        self.name = name
        self.on_disconnect: Literal["cancel", "drain"] = on_disconnect
        self._alternation = count()
        """Of the model that fails every other request."""

    async def open(self, call: ProviderCall) -> SimulatedReply | SimulatedEmbeddings:
        """Begin a reply.

        Raises:
            ProviderFailure: The model refuses by design, or the messages are not understood.
        """
        behaviour = BEHAVIOURS.get(call.endpoint.model, BEHAVIOURS["echo"])
        if behaviour.refuses is not None:
            raise failure(self.name, behaviour.refuses)
        if behaviour.alternates and next(self._alternation) % 2 == 0:
            raise failure(self.name, _BAD_GATEWAY)
        try:
            if call.dialect is Dialect.EMBEDDINGS:
                return SimulatedEmbeddings(embeddings(call.endpoint.model, call.body))
            said = script(call.body, behaviour)
        except NotUnderstood as error:
            raise ProviderRefused(str(error), provider_name=self.name) from None
        return SimulatedReply(self.name, call.endpoint.model, behaviour, said)

    async def check(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """Nothing is held."""


class SimulatedReply:
    """A reply under way."""

    def __init__(self, name: str, model: str, behaviour: Behaviour, said: Script) -> None:
        """Take what will be said."""
        self._name = name
        self._model = model
        self._behaviour = behaviour
        self._script = said

    async def whole(self) -> bytes:
        """Return a chat completion.

        Raises:
            ProviderFailure: The model breaks by design.
        """
        if pause := self._behaviour.pause_seconds:
            await asyncio.sleep(pause * self._script.words)
        if self._behaviour.fails:
            raise _broken(self._name)
        return msgspec.json.encode(reply.whole(self._model, self._script))

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the data of a stream's events.

        Raises:
            ProviderFailure: The model breaks by design.
        """
        for number, chunk in enumerate(reply.chunks(self._model, self._script)):
            if self._behaviour.fails and number == _PIECES_BEFORE_FAILURE:
                raise _broken(self._name)
            if pause := self._behaviour.pause_seconds:
                await asyncio.sleep(pause)
            yield [msgspec.json.encode(chunk)]
        yield [b"[DONE]"]

    async def close(self) -> None:
        """Nothing is held."""


class SimulatedEmbeddings:
    """Embeddings, which are ready at once."""

    def __init__(self, made: dict[str, object]) -> None:
        """Take them."""
        self._made = made

    async def whole(self) -> bytes:
        """Return them."""
        return msgspec.json.encode(self._made)

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return them as the only event: nobody asks for a stream of embeddings."""
        yield [msgspec.json.encode(self._made)]

    async def close(self) -> None:
        """Nothing is held."""


def _broken(name: str) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"{name} broke off the reply, as this model always does.",
        provider_name=name,
        ambiguous=True,
    )
