"""The simulated provider: deterministic responses, and faults on request.

It returns provider responses to the pipeline, so that they are processed like those of a real
provider. As they need no network they would block the event loop, so they are scheduled: one slice
of one response in each iteration of the loop.

Source: https://platform.openai.com/docs/api-reference/chat/object and .../chat/streaming, and the
public gateway's reference of reasoning tokens for `reasoning` and `reasoning_details`.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from hashlib import sha256, shake_128
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tollhouse.inference.providers.failures import failure
from tollhouse.inference.providers.simulated.models import BEHAVIOURS
from tollhouse.inference.providers.simulated.replies import plan_reply
from tollhouse.inference.providers.simulated.request import FORMAT, InvalidSimulatedRequest, sign
from tollhouse.inference.steps import LARGE, Steps
from tollhouse.inference.types import Dialect
from tollhouse.kernel.concurrency import FairQueue
from tollhouse.kernel.errors import ProviderRefused, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence

    from tollhouse.inference.ports import ProviderCall
    from tollhouse.inference.providers.simulated.models import Behaviour
    from tollhouse.inference.providers.simulated.replies import PlannedReply

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
        """Begin a response, unless the request is invalid or the model rejects it by design."""
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
                return ReadyReply(await run(_render_embeddings, call.endpoint.model, call.body))
            plain = not (call.stream or behaviour.pause_seconds or behaviour.fails)
            if plain and len(call.body) > LARGE:
                return ReadyReply(
                    await run(_render_reply, call.endpoint.model, call.body, behaviour)
                )
            planned = await run(plan_reply, call.body, behaviour)
        except InvalidSimulatedRequest as error:
            raise ProviderRefused(str(error), provider_name=self.name) from None
        turn = partial(self._scheduler.turn, call.owner)
        return SimulatedReply(turn, self.name, call.endpoint.model, behaviour, planned)

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


@dataclass(slots=True, repr=False)
class SimulatedReply:
    """A response that is generated as it is read; a model may be made to fail in the middle."""

    _turn: Callable[[], Awaitable[None]]
    _name: str
    _model: str
    _behaviour: Behaviour
    _planned: PlannedReply
    _rest: AsyncIterator[bytes] | None = None

    async def whole(self) -> bytes:
        """Return a chat completion."""
        if pause := self._behaviour.pause_seconds:
            await asyncio.sleep(pause * self._planned.words())
        if self._behaviour.fails:
            raise _interrupted(self._name)
        return msgspec.json.encode(render_completion(self._model, self._planned))

    async def relay(self, take: Callable[[Sequence[bytes]], bool]) -> bool:
        """Give a function the data of a stream's events; see `OpenedReply`."""
        if self._rest is None:
            self._rest = self._events()
        async for data in self._rest:
            if not take([data]):
                return False
        return True

    async def _events(self) -> AsyncIterator[bytes]:
        for number, chunk in enumerate(render_chunks(self._model, self._planned)):
            if self._behaviour.fails and number == _PIECES_BEFORE_FAILURE:
                raise _interrupted(self._name)
            if pause := self._behaviour.pause_seconds:
                await asyncio.sleep(pause)
            elif number % _SLICE == 0:
                await self._turn()
            yield msgspec.json.encode(chunk)
        yield b"[DONE]"

    async def close(self, patience: float = 0.0) -> None:
        """Do nothing: there is nothing to release."""


@dataclass(frozen=True, slots=True, repr=False)
class ReadyReply:
    """A complete response that is already rendered: embeddings, or that to a large request."""

    _body: bytes

    async def whole(self) -> bytes:
        """Return the body."""
        return self._body

    async def relay(self, take: Callable[[Sequence[bytes]], bool]) -> bool:
        """Give a function the body as the only event; it is never requested as a stream."""
        return take([self._body])

    async def close(self, patience: float = 0.0) -> None:
        """Do nothing: there is nothing to release."""


def _render_reply(model: str, body: bytes, behaviour: Behaviour) -> bytes:
    return msgspec.json.encode(render_completion(model, plan_reply(body, behaviour)))


def _render_embeddings(model: str, body: bytes) -> bytes:
    return msgspec.json.encode(embeddings(model, body))


def _interrupted(name: str) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"{name} broke off the reply, as this model always does.",
        provider_name=name,
        ambiguous=True,
    )


# Chat completions, complete or in chunks

FINGERPRINT: Final = "simulated"
_NEVER: Final = -9999.0
"""The log-probability of alternatives that never occur."""

JsonObject = dict[str, object]


def render_completion(model: str, plan: PlannedReply) -> JsonObject:
    """Return a chat completion."""
    return {
        "id": _reply_id(model, plan),
        "object": "chat.completion",
        "model": model,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": index,
                "message": _message(plan, index),
                "logprobs": _logprobs(plan, _pieces(plan, "text")),
                "finish_reason": plan.finish,
            }
            for index in range(plan.choices)
        ],
        "usage": _usage(plan),
    }


def render_chunks(model: str, plan: PlannedReply) -> Iterator[JsonObject]:
    """Return the chunks of a stream, without the final `[DONE]`: one choice after the other."""
    common: JsonObject = {
        "id": _reply_id(model, plan),
        "object": "chat.completion.chunk",
        "model": model,
        "system_fingerprint": FINGERPRINT,
    }
    for index in range(plan.choices):
        for choice in _chunk_choices(plan, index):
            yield {**common, "choices": [{"index": index, **choice}]}
    yield {**common, "choices": [], "usage": _usage(plan)}


def _message(plan: PlannedReply, index: int) -> JsonObject:
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(_pieces(plan, "text")) if _has_text(plan) else None,
        "refusal": "".join(_pieces(plan, "refusal")) or None,
    }
    reasoning = "".join(_pieces(plan, "reasoning"))
    if reasoning and plan.shows_reasoning:
        message["reasoning"] = reasoning
        message["reasoning_details"] = [_detail(reasoning, sign(reasoning))]
    calls = [segment for segment in plan.segments if segment.kind == "call"]
    if calls:
        message["tool_calls"] = [
            _call(_call_id(plan, index, number), call.name, "".join(call.pieces))
            for number, call in enumerate(calls)
        ]
    return message


def _has_text(plan: PlannedReply) -> bool:
    return any(segment.kind == "text" for segment in plan.segments)


def _pieces(plan: PlannedReply, kind: str) -> list[str]:
    return [piece for segment in plan.segments if segment.kind == kind for piece in segment.pieces]


def _chunk_choices(plan: PlannedReply, index: int) -> Iterator[JsonObject]:
    yield _choice({"role": "assistant", "content": "" if _has_text(plan) else None})
    number = 0
    for segment in plan.segments:
        if segment.kind == "call":
            call = _call(_call_id(plan, index, number), segment.name, "")
            yield _choice({"tool_calls": [{"index": number, **call}]})
            for piece in segment.pieces:
                yield _choice({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
            number += 1
        elif segment.kind == "text":
            for piece in segment.pieces:
                yield _choice({"content": piece}, _logprobs(plan, [piece]))
        elif segment.kind == "refusal":
            yield from (_choice({"refusal": piece}) for piece in segment.pieces)
        elif plan.shows_reasoning:
            for piece in segment.pieces:
                details = [_detail(piece, None)]
                yield _choice({"reasoning": piece, "reasoning_details": details})
            signature = sign("".join(segment.pieces))
            yield _choice({"reasoning_details": [_detail("", signature)]})
    yield {**_choice({}), "finish_reason": plan.finish}


def _choice(delta: JsonObject, logprobs: JsonObject | None = None) -> JsonObject:
    return {"delta": delta, "logprobs": logprobs, "finish_reason": None}


def _detail(text: str, signature: str | None) -> JsonObject:
    return {
        "type": "reasoning.text",
        "text": text,
        "signature": signature,
        "id": None,
        "format": FORMAT if signature else None,
        "index": 0,
    }


def _call(call_id: str, name: str, arguments: str) -> JsonObject:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _call_id(plan: PlannedReply, choice: int, number: int) -> str:
    return f"call_{plan.digest[:16]}_{choice}_{number}"


def _logprobs(plan: PlannedReply, words: Sequence[str]) -> JsonObject | None:
    """Return the log-probabilities of words; each word is certain."""
    if plan.top_logprobs is None or not words:
        return None
    return {"content": [_certain(word, plan.top_logprobs) for word in words], "refusal": None}


def _certain(word: str, top: int) -> JsonObject:
    others = [_token(f"<{rank}>", _NEVER) for rank in range(2, top + 1)]
    return {**_token(word, 0.0), "top_logprobs": [_token(word, 0.0), *others][:top]}


def _token(word: str, logprob: float) -> JsonObject:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode())}


def _usage(plan: PlannedReply) -> JsonObject:
    words, reasoning = plan.words(), plan.words("reasoning")
    usage: JsonObject = {
        "prompt_tokens": plan.prompt_words,
        "completion_tokens": words,
        "total_tokens": plan.prompt_words + words,
    }
    if reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return usage


def _reply_id(model: str, plan: PlannedReply) -> str:
    said = (piece for segment in plan.segments for piece in segment.pieces)
    text = "\0".join((model, plan.digest, *said))
    return f"sim-{sha256(text.encode()).hexdigest()[:24]}"


# Embeddings: a deterministic vector for each text

DIMENSIONS: Final = 64
MAX_DIMENSIONS: Final = 4_096
_BYTES_A_NUMBER = 2
_Input = str | list[str | int | list[int] | dict[str, msgspec.Raw]]


class _Request(msgspec.Struct):
    input: _Input
    dimensions: int | None = None


_request = msgspec.json.Decoder(_Request)


def embeddings(model: str, body: bytes) -> JsonObject:
    """Return the response to an embeddings request; a word counts as one token, as does a token id.

    Raises:
        InvalidSimulatedRequest: The input or the dimensions are invalid.
    """
    try:
        request = _request.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidSimulatedRequest(f"input: {error}.") from None
    size = DIMENSIONS if request.dimensions is None else request.dimensions
    if not 1 <= size <= MAX_DIMENSIONS:
        raise InvalidSimulatedRequest(f"dimensions: must be from 1 to {MAX_DIMENSIONS}.")
    texts = _texts(request.input)
    tokens = sum(len(text.split()) for text in texts)
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(text, size)}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": usage}


def _texts(given: _Input) -> list[str]:
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(each, int) for each in given):
        return [" ".join(map(str, given))]  # the tokens of one text
    return [_text(each) for each in given]


def _text(given: str | int | list[int] | dict[str, msgspec.Raw]) -> str:
    if isinstance(given, list):
        return " ".join(map(str, given))
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def _vector(text: str, size: int) -> list[float]:
    """Return a vector of length 1 whose direction is the text's hash."""
    digest = shake_128(text.encode("utf-8", "replace")).digest(size * _BYTES_A_NUMBER)
    halves = zip(digest[::2], digest[1::2], strict=True)
    numbers = [(high * 256 + low) / 32_767.5 - 1 for high, low in halves]
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return [number / length for number in numbers]
