"""The gateway's side of what the proxy asks: resolved, decided and recorded here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.kernel.errors import NotFound, TollhouseError
from tollhouse.vault.egress.messages import (
    AskBound,
    AskLapsed,
    AskRelease,
    Bound,
    Lapsed,
    Value,
    Values,
    Withheld,
)
from tollhouse.vault.egress.refusals import (
    NO_SECRETS,
    NOT_OPENED,
    OTHER_HOST,
    UNAVAILABLE,
    UNBOUND,
    UNKNOWN_SECRET,
)
from tollhouse.vault.releases import Withheld as WithheldByVerdict
from tollhouse.vault.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.vault.egress.messages import Given
    from tollhouse.vault.egress.refusals import Refusal
    from tollhouse.vault.releases import Releases
    from tollhouse.vault.resolutions import Resolutions
    from tollhouse.vault.service import VaultService
    from tollhouse.vault.types import Recipient

Question = AskBound | AskRelease | AskLapsed
Answer = Bound | Values | Withheld | Lapsed
_log = structlog.get_logger(__name__)
_REFUSALS: Final[Mapping[Verdict, Refusal]] = {
    Verdict.UNKNOWN_NAME: UNKNOWN_SECRET,
    Verdict.OTHER_HOST: OTHER_HOST,
    Verdict.UNBOUND: UNBOUND,
}


class Answers:
    """Answers for the sessions that it is told of."""

    def __init__(self, service: VaultService, resolutions: Resolutions, releases: Releases) -> None:
        """Take who decides."""
        self._service = service
        self._resolutions = resolutions
        self._releases = releases
        self._recipients: dict[str, Recipient] = {}

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
        except WithheldByVerdict as withheld:
            refusal = _REFUSALS[withheld.verdict]
        except NotFound:
            refusal = NO_SECRETS
        except TollhouseError:
            refusal = NOT_OPENED
        except Exception as error:  # noqa: BLE001 - the question's edge
            _log.error("egress_question_failed", error=type(error).__name__)
            refusal = UNAVAILABLE
        return Withheld(question.number, refusal.reason)

    async def _answer(self, question: Question) -> Answer:
        match question:
            case AskBound(number, session, host):
                return Bound(number, await self._is_bound(session, host))
            case AskRelease(number, session, host, names):
                who = self._recipient(session)
                released = await self._releases.release(who, host, names)
                self._recipient(session)  # it may have ended meanwhile
                values = [
                    Value(secret.name, value.reveal(), secret.vault_id, secret.version)
                    for secret, value in ((each.secret, each.value) for each in released)
                ]
                return Values(number, values)
            case AskLapsed(number, given):
                places = [at for at, each in enumerate(given) if not await self._stands(each)]
                return Lapsed(number, places)

    def _recipient(self, session: str) -> Recipient:
        who = self._recipients.get(session)
        if who is None:
            message = "There is no such session."
            raise NotFound(message)
        return who

    async def _is_bound(self, session: str, host: str) -> bool:
        resolved = await self._resolutions.of_recipient(self._recipient(session))
        return self._service.is_bound(resolved, host)

    async def _stands(self, given: Given) -> bool:
        try:
            resolved = await self._resolutions.of_recipient(self._recipient(given.session))
        except NotFound:
            return False
        return self._releases.is_current(
            resolved, given.host, given.name, given.vault_id, given.version
        )
