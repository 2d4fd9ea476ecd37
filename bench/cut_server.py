"""A gateway whose way of a request can be cut: what is behind the cut costs nothing.

    python -m bench.cut_server serve ...        a line with a cut's name, any time:  {"cut": NAME}

Functions of the running server are replaced, and put back for the next cut; `src/` knows nothing of
this. A request that comes to a cut is answered with fixed bytes, which name the cut. They all lie
where one part of the gateway calls another; a cut that no request comes to is found by its name.
"""

# ruff: noqa: SLF001 - it does a generation's own steps in its place

from __future__ import annotations

import sys
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import msgspec

from bench.formats import COST, chat_reply
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.api.inference_handler import InferenceHandler
from tollhouse.cli.main import main
from tollhouse.inference.generation import Generation
from tollhouse.inference.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.api.exchange import Exchange

WHOLE: Final = ""
"""No cut."""
_JSON: Final = (b"content-type", b"application/json")


class _Reached(BaseException):
    """A request came to the cut; no handler of errors takes notice."""


def fixed_reply(cut: str) -> bytes:
    """Return what is answered at a cut: the reply that the upstream would have given."""
    reply = msgspec.json.decode(chat_reply())
    reply["id"] = f"cut: {cut}"
    reply["usage"]["cost"] = COST
    return msgspec.json.encode(reply)


def _handle_nothing(body: bytes) -> list[Any]:
    def handle(_: InferenceHandler, exchange: Exchange) -> None:
        exchange.respond(200, [_JSON], body)

    return [patch.object(InferenceHandler, "handle", handle)]


def _accept_everything(body: bytes) -> list[Any]:
    def accepts(_: InferenceHandler, exchange: Exchange) -> bool:
        return exchange.method == "POST"

    return [patch.object(InferenceHandler, "accepts", accepts), *_handle_nothing(body)]


def _parse(body: bytes) -> list[Any]:
    handle_all = InferenceHandler.handle

    def handle(handler: InferenceHandler, exchange: Exchange) -> None:
        try:
            handle_all(handler, exchange)
        except _Reached:
            exchange.respond(200, [_JSON], body)

    def prepare(*_: object) -> None:
        raise _Reached

    return [
        patch.object(InferenceHandler, "handle", handle),
        patch.object(Pipeline, "prepare", prepare),
    ]


# A generation does its steps up to the cut, and then ends without being logged.


def _finish(generation: Any, body: bytes) -> None:
    generation._client.on_outcome = None
    generation._client.finish(body)


def _begin(body: bytes) -> list[Any]:
    async def run(generation: Any) -> None:
        _finish(generation, body)

    return [patch.object(Generation, "run", run)]


def _admit(body: bytes) -> list[Any]:
    async def run(generation: Any) -> None:
        await generation._admit()
        generation._services.admission.release(generation.id)
        _finish(generation, body)

    return [patch.object(Generation, "run", run)]


def _ask(body: bytes) -> list[Any]:
    async def run(generation: Any) -> None:
        [candidate, *_] = await generation._admit()
        await generation._ask(candidate)
        if not isinstance(whole := generation._reply.whole(), bytes):
            await whole
        generation._services.admission.release(generation.id)
        _finish(generation, body)
        generation._close_reply()

    return [patch.object(Generation, "run", run)]


def _settle_nothing(_: bytes) -> list[Any]:
    return [patch.object(Settler, "accept", _do_nothing)]


def _log_nothing(body: bytes) -> list[Any]:
    return [*_settle_nothing(body), patch.object(Generation, "_report", _do_nothing)]


def _do_nothing(*_: object) -> None:
    return None


ANSWERING: Final = 6
"""How many of the cuts answer; a request passes those behind them, and only costs less."""
CUTS: Final[dict[str, Callable[[bytes], list[Any]]]] = {
    "connection, request, fixed reply": _accept_everything,
    "gates, address rate, key, body": _handle_nothing,
    "JSON, attribution, preferences": _parse,
    "generation, its driver and its reply": _begin,
    "routing, admission, release": _admit,
    "ask, provider, upstream client, connection": _ask,
    "read, charge, record, render": _log_nothing,
    "line of the log": _settle_nothing,
}
"""By the last stage before each; in the order in which a request comes to them."""


def _listen() -> None:
    """Cut where the lines of standard input say, and say so."""
    with ExitStack() as stack:
        for line in sys.stdin:
            stack.close()
            cut = line.strip()
            if cut != WHOLE:
                for each in CUTS[cut](fixed_reply(cut)):
                    stack.enter_context(each)
            sys.stdout.write(msgspec.json.encode({"cut": cut}).decode() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    Thread(target=_listen, name="cuts", daemon=True).start()
    sys.exit(main())
