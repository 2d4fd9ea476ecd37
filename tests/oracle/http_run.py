"""Holds random conversations with two gateways at the same time, and keeps what differs.

    compare(repo, 10_000, reasons) -> Result

Conversations are compared turn by turn: what the provider was asked, and what the client was told.
In the end the rows are compared, and the books.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.oracle import http_replies as replies
from tests.oracle import http_rows
from tests.oracle.http_comparison import Difference, Exchange, Made, differences_of
from tests.oracle.http_requests import PATHS, Conversation, Request
from tests.oracle.http_servers import SIDES, Gateway, Lane, Pair, start_pair

_ROOT: Final = Path(__file__).parents[2]
LANES: Final = 12
_EVERYWHERE: Final = "everywhere"
"""Where the books differ, or the requests between conversations."""


@dataclass(frozen=True, slots=True)
class Found:
    """A difference, and where it was."""

    formats: str
    """The client's and the provider's, and how the reply came."""
    path: str
    conversation: int | None
    turn: int | None
    old: str
    new: str

    def reason(self, reasons: Mapping[str, str]) -> str | None:
        """Return why it is decided; None if it is not."""
        kind = f"{self.formats}: {self.path}"
        return next((why for glob, why in reasons.items() if fnmatchcase(kind, glob)), None)


@dataclass(slots=True)
class Result:
    """What a comparison found."""

    conversations: int
    seed: int
    requests: int = 0
    """To both gateways together."""
    seconds: float = 0
    found: list[Found] = field(default_factory=list[Found])
    turns: Counter[str] = field(default_factory=Counter[str])
    """How many there were of each pair of formats."""

    @property
    def equal(self) -> int:
        """How many conversations were the same on both sides."""
        differ = {each.conversation for each in self.found} - {None}
        return self.conversations - len(differ)


class _Party:
    """One gateway's part in a conversation."""

    def __init__(self, gateway: Gateway, lane: Lane, talk: Conversation, since: int) -> None:
        self._gateway, self._lane, self._talk = gateway, lane, talk
        self.made = Made(since)
        self.request: Request | None = talk.first()
        self._models = set[str]()

    async def ask(self) -> Exchange:
        """Ask what the conversation has come to, and decide how it goes on."""
        asked = self.request
        assert asked is not None
        self._models |= asked.models()
        self._lane.answer = lambda received, number: replies.answer(
            self._talk.draw("reply", asked.turn, number), received
        )
        self._lane.asked = []
        reply = await self._gateway.ask(asked.path, asked.body, asked.headers)
        self.made.learn(asked.turn, reply)
        self.request = self._talk.next(asked, reply)
        return Exchange(self._lane.asked, reply)

    async def heal(self) -> None:
        """Have each endpoint of models with several answer, so that none cools down any more."""
        self._lane.answer = lambda received, _: replies.plain(received)
        for model in sorted(self._models):
            providers = self._lane.endpoints(model)
            for provider in providers if len(providers) > 1 else ():
                title = f"after {self._talk.number}: {model} {provider}"
                body = {"model": model, "prompt": "hello", "provider": {"only": [provider]}}
                headers = {"content-type": "application/json", "x-title": title}
                await self._gateway.ask(PATHS["completions"], json.dumps(body).encode(), headers)


class _Comparison:
    """Holds the conversations."""

    def __init__(
        self, pair: Pair, result: Result, reasons: Mapping[str, str], advance: Callable[[], None]
    ) -> None:
        self._pair, self._result, self._advance = pair, result, advance
        self._reasons = reasons
        self._since = int(time.time())  # noqa: TID251 - what servers call now
        self._formats: dict[str, str] = {}
        """By the titles of the requests."""
        self._parted = set[int]()
        """Conversations that ended when they differed, so that their rows differ as well."""

    async def run(self, numbers: range) -> None:
        """Hold the conversations, those of each lane one after the other; compare the rows then."""
        lanes = len(self._pair.lanes["old"])
        async with asyncio.TaskGroup() as group:
            for lane in range(lanes):
                mine = [number for number in numbers if number % lanes == lane]
                group.create_task(self._hold_all(lane, mine))
        for gateway in self._pair.gateways.values():
            await gateway.settle()
        old, new = (self._pair.gateways[side].server for side in SIDES)
        for title, found in http_rows.differences_booked(old, new):
            if title not in self._formats:
                self._keep(found, _EVERYWHERE)
                continue
            number, turn = map(int, title.split("."))
            if number not in self._parted:
                self._keep(found, self._formats[title], number, turn)

    async def _hold_all(self, lane: int, numbers: list[int]) -> None:
        for number in numbers:
            parties = [self._party(side, lane, number) for side in SIDES]
            await self._hold(number, *parties)
            await asyncio.gather(*(each.heal() for each in parties))
            self._advance()

    def _party(self, side: str, lane: int, number: int) -> _Party:
        place = self._pair.lanes[side][lane]
        talk = Conversation(self._result.seed, number, place)
        return _Party(self._pair.gateways[side], place, talk, self._since)

    async def _hold(self, number: int, old: _Party, new: _Party) -> None:
        """Hold a conversation until it ends, or differs in a way that nobody has decided."""
        while (asked := old.request) is not None and new.request is not None:
            one, other = await asyncio.gather(old.ask(), new.ask())
            self._pair.check()
            self._result.requests += 2
            formats = _formats(asked, one)
            self._formats[f"{number}.{asked.turn}"] = formats
            self._result.turns[formats] += 1
            for each in differences_of(one, other, (old.made, new.made)):
                if not self._keep(each, formats, number, asked.turn):
                    self._parted.add(number)
            if number in self._parted:
                return

    def _keep(
        self, found: Difference, formats: str, number: int | None = None, turn: int | None = None
    ) -> bool:
        """Keep a difference, and return whether it is decided."""
        kept = Found(formats, found.path, number, turn, found.old, found.new)
        self._result.found.append(kept)
        return kept.reason(self._reasons) is not None


def _formats(request: Request, turn: Exchange) -> str:
    dialect = replies.dialect_of(turn.asked[0]) if turn.asked else "nobody"
    streams = request.fields().get("stream") is True
    return f"{request.form} from {dialect}, {'streamed' if streams else 'whole'}"


def compare(
    repo: Path,
    conversations: int,
    reasons: Mapping[str, str],
    *,
    seed: int = 0,
    only: int | None = None,
    lanes: int = LANES,
) -> Result:
    """Hold conversations with the gateways of another checkout and of this one.

    Args:
        repo: The other checkout, with its environment.
        conversations: How many.
        reasons: Those for differences that are decided: a conversation goes on after them.
        seed: What they are drawn from.
        only: The number of the only one that is held.
        lanes: How many are held at the same time.
    """
    result = Result(conversations if only is None else 1, seed)
    numbers = range(conversations) if only is None else range(only, only + 1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as folder, _progress() as progress:
        advance = partial(progress.advance, progress.add_task("", total=len(numbers)))

        async def run() -> None:
            async with start_pair(Path(folder), {"old": repo, "new": _ROOT}, lanes) as pair:
                await _Comparison(pair, result, reasons, advance).run(numbers)

        asyncio.run(run())
    result.seconds = round(time.perf_counter() - began, 1)
    return result


def _progress() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
