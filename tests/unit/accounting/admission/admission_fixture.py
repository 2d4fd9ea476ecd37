"""An admission controller with a fake loader of accounts, and short forms of its requests."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from tests.support.builders import charge, generation_record
from tests.support.clock import FakeClock
from tests.support.seams.accounting import (
    AccountFacts,
    AccountingRules,
    AdmissionController,
    AdmissionRequest,
    Credits,
    KeyFacts,
    KeyLimit,
    Owner,
    OwnerFacts,
)
from tollhouse.kernel.clock import Clock
from tollhouse.kernel.errors import TollhouseError, Unavailable
from tollhouse.kernel.money import NANO_PER_CREDIT

ACCOUNT, KEY = "account", "k" * 64
CREDIT = NANO_PER_CREDIT


def limits(error: TollhouseError) -> list[dict[str, object]]:
    """Return the list of limits that a 402 shows."""
    return cast("list[dict[str, object]]", error.metadata["limits"])


async def _at_once() -> None:
    return


@dataclass
class FakeAccountLoader:
    """Returns the account's facts that the test has set."""

    account: AccountFacts = field(default_factory=AccountFacts)
    keys: dict[str, KeyFacts] = field(default_factory=dict)
    reads: int = 0
    owners: dict[Owner, OwnerFacts] = field(default_factory=dict)
    """End users alone: of others the facts of keys tell."""
    before_load: Callable[[], Awaitable[None]] = _at_once
    """Called before the facts are loaded."""

    async def load(self, account_id: str, key_hash: str) -> tuple[AccountFacts, KeyFacts]:
        assert account_id
        await self.before_load()
        self.reads += 1
        return self.account, self.keys.get(key_hash, KeyFacts())

    async def load_owner(self, account_id: str, owner: Owner) -> tuple[AccountFacts, OwnerFacts]:
        assert account_id
        self.reads += 1
        return self.account, self.owners.get(owner, OwnerFacts(owner))


class AdmissionFixture:
    """An admission controller, its loader and its clock."""

    def __init__(
        self,
        *,
        balance: int = 0,
        rules: AccountingRules | None = None,
        limit: KeyLimit | None = None,
        clock: Clock | None = None,
        max_age_seconds: float | None = None,
        shared: Any = None,
        **account: Any,
    ) -> None:
        """Set up the controller.

        Args:
            balance: Credits that were purchased, in nano-credits.
            rules: The limits; the default ones without waiting unless given.
            limit: The limit of the key.
            clock: The time; a clock that stands still unless given.
            max_age_seconds: Age at which the cached account is loaded again.
            shared: What stands for other processes that spend, if some do.
            **account: More facts of the account.
        """
        facts: dict[str, Any] = {"credits": Credits(purchased_nano=balance), **account}
        self.loader = FakeAccountLoader(
            AccountFacts(**facts), {KEY: KeyFacts(limit=limit or KeyLimit())}
        )
        self.clock: Any = clock or FakeClock()
        self.journal_is_full = False
        self.controller = AdmissionController(
            rules or AccountingRules(wait_seconds=0),
            self.loader,
            self.clock,
            reserve_capacity=self._reserve_capacity,
            max_age_seconds=max_age_seconds,
            shared=shared,
        )
        self._numbers = self.charges = 0

    def _reserve_capacity(self, charges: int) -> None:
        assert charges == self.controller.holds + 1
        if self.journal_is_full:
            raise Unavailable("The disk is full.")

    def request(self, estimate: int = 0, **fields: Any) -> AdmissionRequest:
        """Return a request for a paid model, with the next number as its id."""
        self._numbers += 1
        facts: dict[str, Any] = {
            "generation_id": f"gen-{self._numbers}",
            "account_id": ACCOUNT,
            "key_hashes": (KEY,),
            "now": self.clock.now(),
            "estimate_nano": estimate,
            "maximum_nano": estimate,
            "paid": not fields.get("free"),
            "only_free": fields.get("free", False),
        }
        return AdmissionRequest(**(facts | fields))

    async def admit(self, estimate: int = 0, **fields: Any) -> str:
        """Admit a request; return its id."""
        request = self.request(estimate, **fields)
        await self.controller.admit(request)
        return request.generation_id

    def settle(self, generation_id: str, cost: int, **fields: Any) -> None:
        """Put a charge into the journal."""
        self.charges += 1
        self.controller.charged(self.record(generation_id, cost, **fields), self.charges)

    def record(self, generation_id: str, cost: int, **fields: Any) -> Any:
        """Return the record of a reply."""
        facts: dict[str, Any] = {
            "id": generation_id,
            "account_id": ACCOUNT,
            "key_hash": KEY,
            "created_at": self.clock.now(),
            "charge": charge(cost),
        }
        return generation_record(**(facts | fields))
