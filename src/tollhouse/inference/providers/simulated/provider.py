"""The simulated provider: deterministic replies, and faults on request.

It speaks a provider's dialects to the pipeline, so that every reply takes the way that a real
provider's reply takes. A real one is slow and far away; this one would keep the event loop busy,
so its replies take turns: one slice of one reply in each turn of the loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tollhouse.inference.providers.failures import failure
from tollhouse.inference.providers.simulated import chat_completion
from tollhouse.inference.providers.simulated.embedding import embeddings
from tollhouse.inference.providers.simulated.models import BEHAVIOURS, Behaviour
from tollhouse.inference.providers.simulated.reply_planner import PlannedReply, plan_reply
from tollhouse.inference.providers.simulated.request import InvalidSimulatedRequest
from tollhouse.inference.steps import LARGE, Steps
from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import ProviderRefused, ProviderUnavailable
from tollhouse.kernel.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from tollhouse.inference.providers.base import ProviderCall

NAME: Final = "Simulated"
_PIECES_BEFORE_FAILURE = 2
_SLICE: Final = 8
"""Chunks of a stream in one turn of the event loop: about a millisecond."""
_BAD_GATEWAY = 502


class SimulatedProvider:
    """Answers without a network."""

    dialects: Collection[Dialect] = frozenset((Dialect.CHAT, Dialect.EMBEDDINGS))

    def __init__(
        self, name: str, on_disconnect: Literal["cancel", "drain"], steps: Steps | None = None
    ) -> None:
        """Take the settings that every provider has, and what reads large requests."""
        self._steps = steps or Steps()
        self._scheduler = _TurnScheduler()
        self.name = name
        self.on_disconnect: Literal["cancel", "drain"] = on_disconnect
        self._alternation = count()
        """Of the model that fails every other request."""

    async def open(self, call: ProviderCall) -> SimulatedReply | ReadyReply:
        """Begin a reply.

        Raises:
            ProviderFailure: The model refuses by design, or the messages are not understood.
        """
        behaviour = BEHAVIOURS.get(call.endpoint.model, BEHAVIOURS["echo"])
        if behaviour.refuses is not None:
            raise failure(self.name, behaviour.refuses)
        if behaviour.alternates and next(self._alternation) % 2 == 0:
            raise failure(self.name, _BAD_GATEWAY)
        run = partial(self._steps.run, call.owner, len(call.body))
        if not behaviour.pause_seconds:
            await self._scheduler.turn(call.owner)
        try:
            if call.dialect is Dialect.EMBEDDINGS:
                made = await run(_render_embeddings, call.endpoint.model, call.body)
                return ReadyReply(made)
            plain = not (call.stream or behaviour.pause_seconds or behaviour.fails)
            if plain and len(call.body) > LARGE:
                return ReadyReply(
                    await run(_render_reply, call.endpoint.model, call.body, behaviour)
                )
            said = await run(plan_reply, call.body, behaviour)
        except InvalidSimulatedRequest as error:
            raise ProviderRefused(str(error), provider_name=self.name) from None
        turn = partial(self._scheduler.turn, call.owner)
        return SimulatedReply(self.name, call.endpoint.model, behaviour, said, turn)

    async def check(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """Nothing is held."""


class _TurnScheduler:
    """Lets one reply go on in each turn of the event loop; accounts take turns."""

    def __init__(self) -> None:
        self._waiting: Turns[asyncio.Future[None]] = Turns()
        self._is_due = False

    async def turn(self, owner: str) -> None:
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.add(owner, mine)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next, loop)
        await mine

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while (each := self._waiting.next()) is not None:
            if not each.done():
                each.set_result(None)
                loop.call_soon(self._next, loop)
                return
        self._is_due = False


class SimulatedReply:
    """A reply under way."""

    def __init__(
        self,
        name: str,
        model: str,
        behaviour: Behaviour,
        said: PlannedReply,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        """Take what will be said, and what waits until more of it may be."""
        self._turn = turn
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
            raise _interrupted(self._name)
        return msgspec.json.encode(chat_completion.render_completion(self._model, self._script))

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the data of a stream's events.

        Raises:
            ProviderFailure: The model breaks by design.
        """
        for number, chunk in enumerate(chat_completion.render_chunks(self._model, self._script)):
            if self._behaviour.fails and number == _PIECES_BEFORE_FAILURE:
                raise _interrupted(self._name)
            if pause := self._behaviour.pause_seconds:
                await asyncio.sleep(pause)
            elif number % _SLICE == 0:
                await self._turn()
            yield [msgspec.json.encode(chunk)]
        yield [b"[DONE]"]

    async def close(self) -> None:
        """Nothing is held."""


class ReadyReply:
    """A whole reply that is there already: embeddings, or that to a large request."""

    def __init__(self, made: bytes) -> None:
        """Take its body."""
        self._made = made

    async def whole(self) -> bytes:
        """Return it."""
        return self._made

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return it as the only event: nobody asks for a stream of it."""
        yield [self._made]

    async def close(self) -> None:
        """Nothing is held."""


def _render_reply(model: str, body: bytes, behaviour: Behaviour) -> bytes:
    return msgspec.json.encode(
        chat_completion.render_completion(model, plan_reply(body, behaviour))
    )


def _render_embeddings(model: str, body: bytes) -> bytes:
    return msgspec.json.encode(embeddings(model, body))


def _interrupted(name: str) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"{name} broke off the reply, as this model always does.",
        provider_name=name,
        ambiguous=True,
    )
