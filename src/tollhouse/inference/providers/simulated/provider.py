"""The simulated provider: deterministic responses, and faults on request.

It returns provider responses to the pipeline, so that they are processed like those of a real
provider. As they need no network they would block the event loop, so they are scheduled: one slice
of one response in each iteration of the loop.
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
from tollhouse.kernel.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from tollhouse.inference.providers.base import ProviderCall

NAME: Final = "Simulated"
_PIECES_BEFORE_FAILURE = 2
_SLICE: Final = 8
"""Chunks of a stream in one iteration of the event loop: about a millisecond."""
_BAD_GATEWAY = 502


class SimulatedProvider:
    """A provider that responds without a network."""

    dialects: Collection[Dialect] = frozenset((Dialect.CHAT, Dialect.EMBEDDINGS))

    def __init__(
        self, name: str, on_disconnect: Literal["cancel", "drain"], steps: Steps | None = None
    ) -> None:
        self._steps = steps or Steps()
        self._scheduler = _TurnScheduler()
        self.name = name
        self.on_disconnect: Literal["cancel", "drain"] = on_disconnect
        self._alternation = count()
        """Counts the requests of the model that fails every other one."""

    async def open(self, call: ProviderCall) -> SimulatedReply | ReadyReply:
        """Begin a response.

        Raises:
            ProviderFailure: The model rejects requests by design, or the request is invalid.
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
            planned = await run(plan_reply, call.body, behaviour)
        except InvalidSimulatedRequest as error:
            raise ProviderRefused(str(error), provider_name=self.name) from None
        turn = partial(self._scheduler.turn, call.owner)
        return SimulatedReply(self.name, call.endpoint.model, behaviour, planned, turn)

    async def check(self) -> None:
        """Do nothing: the provider is always available."""

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class _TurnScheduler:
    """Lets one response continue in each iteration of the event loop, fairly between accounts."""

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
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
    """A response that is generated as it is read."""

    def __init__(
        self,
        name: str,
        model: str,
        behaviour: Behaviour,
        planned: PlannedReply,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._turn = turn
        self._name = name
        self._model = model
        self._behaviour = behaviour
        self._planned = planned

    async def whole(self) -> bytes:
        """Return a chat completion.

        Raises:
            ProviderFailure: The model fails by design.
        """
        if pause := self._behaviour.pause_seconds:
            await asyncio.sleep(pause * self._planned.words)
        if self._behaviour.fails:
            raise _interrupted(self._name)
        return msgspec.json.encode(chat_completion.render_completion(self._model, self._planned))

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the data of a stream's events.

        Raises:
            ProviderFailure: The model fails by design.
        """
        for number, chunk in enumerate(chat_completion.render_chunks(self._model, self._planned)):
            if self._behaviour.fails and number == _PIECES_BEFORE_FAILURE:
                raise _interrupted(self._name)
            if pause := self._behaviour.pause_seconds:
                await asyncio.sleep(pause)
            elif number % _SLICE == 0:
                await self._turn()
            yield [msgspec.json.encode(chunk)]
        yield [b"[DONE]"]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class ReadyReply:
    """A complete response that is already rendered: embeddings, or that to a large request."""

    def __init__(self, made: bytes) -> None:
        self._made = made

    async def whole(self) -> bytes:
        """Return the body."""
        return self._made

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the body as the only event; it is never requested as a stream."""
        yield [self._made]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


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
