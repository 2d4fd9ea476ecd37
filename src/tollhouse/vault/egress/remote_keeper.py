"""The keeper of secrets as the proxy sees it: the gateway, asked over a socket."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from tollhouse.kernel.secret import Secret
from tollhouse.vault.egress import refusals
from tollhouse.vault.egress.messages import (
    AskBound,
    AskLapsed,
    AskRelease,
    Bound,
    Given,
    Lapsed,
    Values,
    Withheld,
    frame,
)
from tollhouse.vault.egress.ports import Grant, Released
from tollhouse.vault.egress.refusals import Refusal, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tollhouse.vault.egress.messages import FromProxy

ANSWER_SECONDS: Final = 15.0
"""How long the gateway may take: it may have to ask a program for a key."""
Answer = Bound | Values | Withheld | Lapsed
A = TypeVar("A", Bound, Values, Lapsed)
_BY_REASON = {each.reason: each for each in vars(refusals).values() if isinstance(each, Refusal)}


class RemoteKeeper:
    """Asks, and waits for the answer; see `ports.Keeper`."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        """Take what sends bytes to the gateway."""
        self._say = say
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Answer]] = {}

    async def is_bound(self, session: str, host: str) -> bool:
        """Ask; see `ports.Keeper`."""
        return (await self._ask(Bound, lambda number: AskBound(number, session, host))).bound

    async def release(
        self, session: str, host: str, names: Sequence[str]
    ) -> Mapping[str, Released]:
        """Ask; see `ports.Keeper`."""
        answer = await self._ask(
            Values, lambda number: AskRelease(number, session, host, list(names))
        )
        return {
            each.name: Released(
                Grant(session, host, each.name, each.vault_id, each.version), Secret(each.value)
            )
            for each in answer.values
        }

    async def lapsed(self, grants: Collection[Grant]) -> Collection[Grant]:
        """Ask; see `ports.Keeper`."""
        listed = list(grants)
        given = [Given(g.session, g.host, g.name, g.vault_id, g.version) for g in listed]
        answer = await self._ask(Lapsed, lambda number: AskLapsed(number, given))
        return [listed[place] for place in answer.places]

    def hear(self, answer: Answer) -> None:
        """Pass an answer on to who waits for it; they may have gone."""
        waiting = self._asked.get(answer.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def _ask(self, kind: type[A], question: Callable[[int], FromProxy]) -> A:
        number = next(self._numbers)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = waiting
        try:
            self._say(frame(question(number)))
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await waiting
        except TimeoutError:
            raise Refused(refusals.UNAVAILABLE) from None
        finally:
            del self._asked[number]
        if isinstance(answer, kind):
            return answer
        reason = answer.reason if isinstance(answer, Withheld) else ""
        raise Refused(_BY_REASON.get(reason, refusals.UNAVAILABLE))
