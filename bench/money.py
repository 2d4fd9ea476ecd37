"""What billing costs a request: everything but HTTP and the provider.

    authenticate    the key's text -> its subject
    estimate        what the request may cost, from its body and the endpoints that may serve it
    admit           limits, holds, space in the journal
    charge          from usage to a record
    settle          journal, and the end of the hold
    book            the groups in the database, in the writer's thread; and the event loop

On the shipped code with an SQLite file, an account below the threshold, so that its in-flight
budget is computed, and a key with a limit: the longest path through admission.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.account_loader import DatabaseAccountLoader
from tollhouse.accounting.admission.controller import AdmissionController
from tollhouse.accounting.pricing import charge_for
from tollhouse.accounting.rules import AccountingRules
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.accounting.settlement.sqlite import SqliteChargeWriter
from tollhouse.accounting.types import (
    Attempt,
    Attribution,
    GenerationRecord,
    KeyLimit,
    PostingKind,
    Price,
    Rates,
    Usage,
)
from tollhouse.identity.auth import Authenticator
from tollhouse.identity.service import IdentityService
from tollhouse.inference.admission_request import admission_request_of
from tollhouse.inference.call import Call
from tollhouse.inference.formats.chat_completions.passthrough import ChatPassthroughAdapter
from tollhouse.inference.formats.chat_completions.request_parser import parse_request
from tollhouse.inference.preferences import NO_PREFERENCES
from tollhouse.inference.routing import Candidate
from tollhouse.inference.types import Endpoint, Model
from tollhouse.kernel.clock import SystemClock, unix_seconds
from tollhouse.kernel.ids import RandomIds
from tollhouse.kernel.money import NANO_PER_CREDIT
from tollhouse.storage.database import open_database
from tollhouse.storage.migrator import upgrade
from tollhouse.storage.urls import sqlite_url
from tollhouse.testing.builders import Tenant, add_tenant

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tollhouse.storage.database import Database

STEPS: Final = ("authenticate", "estimate", "admit", "charge", "settle")
AT_ONCE: Final = 32
"""Requests between two iterations of the event loop."""
_MICRO: Final = 1e6
_USAGE: Final = Usage(input_tokens=19, output_tokens=120)
_BODY: Final = (
    b'{"model": "bench/fixed", "max_tokens": 200, "temperature": 0.2, "messages": '
    b'[{"role": "system", "content": "You are a helpful assistant."}, '
    b'{"role": "user", "content": "What is the capital of France, and since when?"}]}'
)
_CENT_A_MILLION: Final = Decimal("0.00000001")
_PRICE: Final = Price(
    Rates(*(5 * [_CENT_A_MILLION]))  # prompt, completion, and the three of the cache
)


class _StepClock:
    """Adds the thread's CPU time since the last step to a step."""

    def __init__(self, spent: defaultdict[str, float]) -> None:
        self._spent = spent
        self._begin = time.thread_time()

    def done(self, step: str) -> None:
        end = time.thread_time()
        self._spent[step] += end - self._begin
        self._begin = end


class BillingSteps:
    """The billing steps of requests, measured one by one."""

    def __init__(self, database: Database, tenant: Tenant, settler: Settler) -> None:
        clock = SystemClock()
        authenticator = Authenticator(database, clock, None)
        identity = IdentityService(clock, RandomIds(), authenticator)
        loader = DatabaseAccountLoader(database, identity, clock, settler.between_groups)
        self._rules = AccountingRules()
        self._admission = AdmissionController(
            self._rules, loader, clock, reserve_capacity=settler.reserve_capacity
        )
        settler.observer = self._admission
        self._settler = settler
        self._authenticator = authenticator
        self._clock = clock
        self._ids = RandomIds()
        self._key = tenant.key_text
        self._request = parse_request(_BODY)
        relay = ChatPassthroughAdapter(self._request)
        endpoint = Endpoint("bench", "fixed", _PRICE)
        model = Model("bench/fixed", "Fixed", "", 8_192, None, (endpoint,))
        self._relays = (relay,)
        self._candidates = (Candidate(model, endpoint, relay),)
        self.spent: defaultdict[str, float] = defaultdict(float)
        """CPU seconds of the event loop's thread, for each step."""

    async def requests(self, count: int) -> None:
        """Process requests from authentication to settlement, each step for all of them together.

        A clock costs as much as a step does, so it is read between the steps of all of them.
        """
        numbers = range(count)
        now = self._clock.now()
        ids = [self._ids.generation(unix_seconds(now)) for _ in numbers]
        clock = _StepClock(self.spent)
        subjects = [await self._authenticator.authenticate(self._key) for _ in numbers]
        clock.done("authenticate")
        calls = [
            Call(
                self._request,
                self._relays,
                NO_PREFERENCES,
                each,
                Attribution(),
                now,
                0.0,
                lambda _: (self._request, self._relays),
            )
            for each in subjects
        ]
        clock.done("(call)")
        admissions = [
            admission_request_of(id_, call, self._candidates, self._rules)
            for id_, call in zip(ids, calls, strict=True)
        ]
        clock.done("estimate")
        for request in admissions:
            await self._admission.admit(request)
        clock.done("admit")
        records = [self._record(call, id_) for id_, call in zip(ids, calls, strict=True)]
        clock.done("charge")
        for record in records:
            await self._settler.settle(record)
            self._admission.release(record.id)
        clock.done("settle")

    def _record(self, call: Call, generation: str) -> GenerationRecord:
        [candidate] = self._candidates
        charge = charge_for(
            _USAGE, _USAGE, candidate.endpoint.price, finish_reason="stop", broken_off=False
        )
        return GenerationRecord(
            id=generation,
            account_id=call.subject.account_id,
            workspace_id=call.subject.workspace_id,
            key_hash=call.subject.key_hash,
            api_type="completions",
            model=candidate.model.id,
            provider="Bench",
            provider_model=candidate.endpoint.model,
            upstream_id="chatcmpl-123",
            is_byok=False,
            streamed=False,
            cancelled=False,
            finish_reason="stop",
            native_finish_reason="stop",
            charge=charge,
            latency_ms=100,
            generation_ms=5,
            attempts=(Attempt("Bench", 200, 99),),
            attribution=call.attribution,
            created_at=call.received_at,
        )


def measure(folder: Path, requests: int) -> Mapping[str, float]:
    """Return microseconds of CPU a request: each step's, `book` and `total`.

    Args:
        folder: An empty folder for the database and the journal.
        requests: How many, after some that are not counted.
    """
    upgrade(sqlite_url(folder / "money.db"))
    return asyncio.run(_measure(folder, requests))


async def _measure(folder: Path, requests: int) -> Mapping[str, float]:
    database = open_database(sqlite_url(folder / "money.db"))
    tenant = await _tenant(database)
    writer = SqliteChargeWriter(folder / "money.db", database.write_lock)
    settler = Settler(Journal(folder / "journal"), writer)
    billing = BillingSteps(database, tenant, settler)
    await _serve(billing, settler, requests // 10)
    billing.spent.clear()
    begin = time.process_time()
    await _serve(billing, settler, requests)
    total = time.process_time() - begin
    await settler.close()
    await database.close()
    costs = {step: billing.spent[step] * _MICRO / requests for step in STEPS}
    own = billing.spent["(call)"] * _MICRO / requests
    whole = total * _MICRO / requests - own
    return {**costs, "book": whole - sum(costs.values()), "total": whole}


async def _serve(billing: BillingSteps, settler: Settler, requests: int) -> None:
    for _ in range(requests // AT_ONCE):
        await billing.requests(AT_ONCE)
        await asyncio.sleep(0)
    await settler.settled()


async def _tenant(database: Database) -> Tenant:
    clock, ids = SystemClock(), RandomIds()
    tenant = await add_tenant(database, clock=clock, ids=ids)
    accounting = AccountingService(clock, ids)
    async with database.writing() as write:
        amount = 499 * NANO_PER_CREDIT
        account = tenant.account.id
        await accounting.add_credits(write, account, PostingKind.PURCHASE, amount)
        await accounting.set_key_limit(write, account, tenant.key.hash, KeyLimit(amount))
    return tenant
