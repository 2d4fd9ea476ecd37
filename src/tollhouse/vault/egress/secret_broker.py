"""What the proxy asks about secrets, which another process knows: the gateway.

proxy ──> SecretBrokerClient ──> messages ──> SecretBrokerServer ──> the vault
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import structlog

from tollhouse.kernel.errors import NotFound, TollhouseError
from tollhouse.kernel.secret import Secret
from tollhouse.vault.disclosures import DisclosureDenied, Disclosures, ResolutionCache
from tollhouse.vault.egress import rejections
from tollhouse.vault.egress.messages import (
    FROM_PROXY,
    AskBound,
    AskLapsed,
    AskRelease,
    Bound,
    Grant,
    Lapsed,
    ReleaseDenied,
    ReleasedValue,
    Values,
)
from tollhouse.vault.egress.rejections import Rejected, Rejection
from tollhouse.vault.types import Recipient, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tollhouse.vault.service import VaultService


@dataclass(frozen=True, slots=True)
class DisclosedSecret:
    """A value, and what it was released as."""

    grant: Grant
    value: Secret = field(repr=False)


class SecretBroker(Protocol):
    """Knows which hosts secrets are bound to; releases values, and records that it did."""

    async def is_bound(self, session: str, host: str) -> bool:
        """Tell whether a host has a secret bound to it; `Rejected` where nothing may be reached."""
        ...

    async def release(
        self, session: str, host: str, names: Sequence[str]
    ) -> Mapping[str, DisclosedSecret]:
        """Return the values of some names for one request to a host; the record has them then.

        Raises `Rejected` where one of them does not go there, or the record cannot be written.
        """
        ...

    async def lapsed(self, grants: Collection[Grant]) -> Collection[Grant]:
        """Return those that would not be given any more."""
        ...


ANSWER_SECONDS: Final = 15.0
"""How long the gateway may take: it may have to ask a program for a key."""
Question = AskBound | AskRelease | AskLapsed
Answer = Bound | Values | ReleaseDenied | Lapsed
A = TypeVar("A", Bound, Values, Lapsed)


class SecretBrokerClient:
    """The broker in the proxy's process: asks the gateway, and waits for the answer."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        self._say = say
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Answer]] = {}

    async def is_bound(self, session: str, host: str) -> bool:
        """See `SecretBroker`."""
        question = AskBound(next(self._numbers), session, host)
        return (await self._ask(Bound, question)).bound

    async def release(
        self, session: str, host: str, names: Sequence[str]
    ) -> Mapping[str, DisclosedSecret]:
        """See `SecretBroker`."""
        question = AskRelease(next(self._numbers), session, host, list(names))
        found: dict[str, DisclosedSecret] = {}
        for each in (await self._ask(Values, question)).values:
            grant = Grant(session, host, each.name, each.vault_id, each.version)
            found[each.name] = DisclosedSecret(grant, Secret(each.value))
        return found

    async def lapsed(self, grants: Collection[Grant]) -> Collection[Grant]:
        """See `SecretBroker`."""
        listed = list(grants)
        answer = await self._ask(Lapsed, AskLapsed(next(self._numbers), listed))
        return [listed[place] for place in answer.places]

    def receive(self, answer: Answer) -> None:
        """Pass an answer on to whoever waits for it; they may have gone."""
        waiting = self._asked.get(answer.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def _ask(self, kind: type[A], question: Question) -> A:
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[question.number] = waiting
        try:
            self._say(FROM_PROXY.encode(question))
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await waiting
        except TimeoutError:
            raise Rejected(rejections.UNAVAILABLE) from None
        finally:
            del self._asked[question.number]
        if isinstance(answer, kind):
            return answer
        reason = answer.reason if isinstance(answer, ReleaseDenied) else ""
        raise Rejected(rejections.BY_REASON.get(reason, rejections.UNAVAILABLE))


_log = structlog.get_logger(__name__)
_REJECTIONS: Final[Mapping[Verdict, Rejection]] = {
    Verdict.UNKNOWN_NAME: rejections.UNKNOWN_SECRET,
    Verdict.OTHER_HOST: rejections.OTHER_HOST,
    Verdict.UNBOUND: rejections.UNBOUND,
}


@dataclass(slots=True)
class SecretBrokerServer:
    """Answers, in the gateway, for the sessions that it is told of."""

    service: VaultService
    resolutions: ResolutionCache
    disclosures: Disclosures
    _recipients: dict[str, Recipient] = field(default_factory=dict[str, "Recipient"])

    def begin(self, session: str, who: Recipient) -> None:
        """Answer for a session from now on."""
        self._recipients[session] = who

    def end(self, session: str) -> None:
        """Release nothing to a session any more."""
        self._recipients.pop(session, None)

    async def answer(self, question: Question) -> Answer:
        """Return the answer to a question of the proxy's; there is always one."""
        try:
            return await self._answer(question)
        except DisclosureDenied as denied:
            rejection = _REJECTIONS[denied.verdict]
        except NotFound:
            rejection = rejections.NO_SECRETS
        except TollhouseError:
            rejection = rejections.NOT_OPENED
        except Exception as error:  # noqa: BLE001 - the question's edge
            _log.error("egress_question_failed", error=type(error).__name__)
            rejection = rejections.UNAVAILABLE
        return ReleaseDenied(question.number, rejection.reason)

    async def _answer(self, question: Question) -> Answer:
        match question:
            case AskBound(number, session, host):
                resolved = await self.resolutions.of_recipient(self._recipient(session))
                return Bound(number, self.service.is_bound(resolved, host))
            case AskRelease(number, session, host, names):
                who = self._recipient(session)
                disclosed = await self.disclosures.disclose(who, host, names)
                self._recipient(session)  # it may have ended meanwhile
                values = [
                    ReleasedValue(each.name, value.reveal(), each.vault_id, each.version)
                    for each, value in disclosed
                ]
                return Values(number, values)
            case AskLapsed(number, grants):
                places = [at for at, each in enumerate(grants) if not await self._is_current(each)]
                return Lapsed(number, places)

    def _recipient(self, session: str) -> Recipient:
        who = self._recipients.get(session)
        if who is None:
            raise NotFound("There is no such session.")
        return who

    async def _is_current(self, grant: Grant) -> bool:
        try:
            resolved = await self.resolutions.of_recipient(self._recipient(grant.session))
        except NotFound:
            return False
        return self.disclosures.is_current(
            resolved, grant.host, grant.name, grant.vault_id, grant.version
        )
