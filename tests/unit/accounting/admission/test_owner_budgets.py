"""What requests of a workspace, of a person's keys and of an end user may use together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.clock import FakeClock
from tests.support.seams.accounting import (
    BudgetScope,
    KeyFacts,
    KeyLimit,
    Owner,
    OwnerFacts,
    OwnerLimit,
    OwnerUse,
    Reset,
    Spend,
    claim_of,
    end_user,
)
from tests.unit.accounting.admission.admission_fixture import (
    CREDIT,
    KEY,
    AdmissionFixture,
    limits,
)
from tollhouse.kernel.errors import PaymentRequired

if TYPE_CHECKING:
    from collections.abc import Sequence

OTHER_KEY = "o" * 64
PEOPLE, WORKSPACE = Owner(BudgetScope.MEMBER, "ada"), Owner(BudgetScope.WORKSPACE, "w")
USER = end_user("w", "bob@example.com")
OWNERS = [PEOPLE, USER, WORKSPACE]
NOW = datetime(2026, 3, 11, 23, 59, 59, tzinfo=UTC)


def limit(owner: Owner, nano: int, reset: Reset | None = None, **fields: Any) -> OwnerLimit:
    facts = {"include_byok": False, **fields}
    return OwnerLimit(owner, "id", nano, reset, created_at=NOW, updated_at=NOW, **facts)


def limited(
    owner: Owner, *found: OwnerLimit, use: OwnerUse | None = None, clock: FakeClock | None = None
) -> AdmissionFixture:
    """Return a controller with two keys of a person in a workspace, and limits of one owner."""
    admission = AdmissionFixture(balance=1_000 * CREDIT, clock=clock or FakeClock(NOW))
    put(admission, owner, *found, use=use)
    return admission


def put(
    admission: AdmissionFixture, owner: Owner, *found: OwnerLimit, use: OwnerUse | None = None
) -> None:
    """Have the books tell of limits, and of what the owner has used."""
    keys = (KEY, OTHER_KEY) if owner is PEOPLE else ()
    facts = OwnerFacts(owner, found, use or OwnerUse(), keys)
    if owner is USER:
        admission.loader.owners[USER] = facts
    others = [OwnerFacts(each) for each in (PEOPLE, WORKSPACE) if each is not owner]
    owners = [facts, *others] if owner is not USER else others
    for key in (KEY, OTHER_KEY):
        admission.loader.keys[key] = KeyFacts(
            owners=owners, limits_end_users=owner is USER and bool(found)
        )
    admission.controller.invalidate("account")


async def admit(admission: AdmissionFixture, nano: int, key: str = KEY, **fields: Any) -> str:
    return await admission.admit(nano, key_hashes=(key,), end_user=USER, **fields)


def settle(admission: AdmissionFixture, generation_id: str, nano: int, **fields: Any) -> None:
    facts = {"workspace_id": "w", "external_user": "bob@example.com", **fields}
    admission.settle(generation_id, nano, **facts)


async def refused(admission: AdmissionFixture, nano: int = 1, **fields: Any) -> PaymentRequired:
    with pytest.raises(PaymentRequired) as caught:
        await admit(admission, nano, **fields)
    return caught.value


@pytest.mark.parametrize("owner", OWNERS)
async def test_what_all_keys_use_and_hold_counts_together(owner: Owner) -> None:
    admission = limited(owner, limit(owner, 10))
    first = await admit(admission, 4)
    await admit(admission, 5, OTHER_KEY)
    error = await refused(admission, 2)
    scope = owner.scope.value
    metadata = error.metadata
    assert (metadata["reason"], metadata["limit_source"]) == (
        f"{scope}_limit_held",
        f"service_{scope}",
    )
    assert limits(error)[0] == {
        "limit_source": f"service_{scope}",
        "payer": False,
        "limit": 1e-8,
        "used": 0,
        "held": 9e-9,
        "remaining": 1e-9,
        "resets_at": None,
    }
    settle(admission, first, 2)
    await admit(admission, 3)
    assert (await refused(admission, 1)).metadata["reason"] == f"{scope}_limit_held"


async def test_the_last_limit_of_a_workspaces_end_users_goes_whatever_others_have() -> None:
    admission = limited(USER, limit(USER, 10))
    loader = admission.loader
    elsewhere = OwnerFacts(Owner(BudgetScope.WORKSPACE, "elsewhere"))
    loader.keys[OTHER_KEY] = KeyFacts(owners=[elsewhere], limits_end_users=True)
    await admission.admit(1, key_hashes=(OTHER_KEY,))
    await refused(admission, 11)
    loader.keys[KEY] = KeyFacts(owners=[OwnerFacts(WORKSPACE)], limits_end_users=False)
    admission.controller.invalidate("account")
    await admission.admit(1, key_hashes=(OTHER_KEY,))
    await admit(admission, 11)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("include", [False, True])
async def test_own_keys_count_where_they_are_included(owner: Owner, *, include: bool) -> None:
    use = OwnerUse(total=Spend(1, 8))
    admission = limited(owner, limit(owner, 10, include_byok=include), use=use)
    if include:
        assert await admit(admission, 1, own_key=True)
        assert (await refused(admission, 1, own_key=True)).metadata["reason"].endswith("_held")
    else:
        await admit(admission, 20, own_key=True)
        await admit(admission, 9)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("reset", Reset)
async def test_a_window_ends_at_midnight_and_what_was_charged_before_stays_in_it(
    owner: Owner, reset: Reset
) -> None:
    clock = FakeClock(NOW)
    use = OwnerUse(days={date(2026, 3, 11): Spend(3)})
    admission = limited(owner, limit(owner, 10, reset), use=use, clock=clock)
    settle(admission, await admit(admission, 7), 7)
    error = await refused(admission)
    assert error.metadata["reason"] == f"{owner.scope}_limit_exhausted"
    end = {Reset.DAILY: "2026-03-12", Reset.WEEKLY: "2026-03-16", Reset.MONTHLY: "2026-04-01"}
    assert limits(error)[0]["resets_at"] == f"{end[reset]}T00:00:00Z"
    remedy = cast("str", error.metadata["remedy_hint"])
    assert f"wait for its reset at {end[reset]}T00:00:00Z" in remedy
    clock.set(datetime.fromisoformat(f"{end[reset]}T00:00:00Z"))
    await admit(admission, 10)
    await refused(admission)


@pytest.mark.parametrize("owner", OWNERS)
async def test_a_limit_is_lowered_and_taken_away_under_way(owner: Owner) -> None:
    admission = limited(owner, limit(owner, 10))
    running = [await admit(admission, 4), await admit(admission, 4)]
    put(admission, owner, limit(owner, 5))
    assert (await refused(admission)).metadata["reason"] == f"{owner.scope}_limit_held"
    put(admission, owner)
    await admit(admission, 100)
    put(admission, owner, limit(owner, 10))
    assert (await refused(admission, 3)).metadata["reason"] == f"{owner.scope}_limit_held"
    for each in running:
        settle(admission, each, 4)
    assert (await refused(admission, 3)).metadata["reason"] == f"weight_exceeds_{owner.scope}_limit"
    await admit(admission, 2)


@pytest.mark.parametrize("owner", OWNERS)
async def test_what_is_on_its_way_to_the_books_counts_when_they_are_read(owner: Owner) -> None:
    admission = limited(owner, limit(owner, 10))
    settle(admission, await admit(admission, 6), 6)
    put(admission, owner, limit(owner, 10))  # the books do not have it yet
    assert (await refused(admission, 5)).metadata["reason"] == f"weight_exceeds_{owner.scope}_limit"
    await admit(admission, 4)


async def test_others_do_not_draw_on_an_owners_budget() -> None:
    admission = limited(USER, limit(USER, 1))
    await admission.admit(50, end_user=end_user("w", "eve"))
    await admission.admit(50)
    settle(admission, await admission.admit(1), 1, external_user="eve")
    await admit(admission, 1)
    await refused(admission)


async def test_of_several_limits_the_first_in_their_order_refuses_and_all_are_shown() -> None:
    owners = (
        OwnerFacts(PEOPLE, [limit(PEOPLE, 9, Reset.MONTHLY)], keys=[KEY]),
        OwnerFacts(WORKSPACE, [limit(WORKSPACE, 2, Reset.DAILY), limit(WORKSPACE, 8)]),
    )
    admission = limited(USER, limit(USER, 5, Reset.WEEKLY))
    admission.loader.keys[KEY] = KeyFacts(KeyLimit(1), owners=owners, limits_end_users=True)

    async def sources(nano: int) -> Sequence[object]:
        return [each["limit_source"] for each in limits(await refused(admission, nano))]

    of = {name: f"service_{name}" for name in ("member", "end_user", "workspace", "key_limit")}
    every = [of["member"], of["end_user"], of["workspace"], of["workspace"], of["key_limit"]]
    for nano, first in ((10, "member"), (6, "end_user"), (3, "workspace"), (2, "key_limit")):
        found = await sources(nano)
        assert found[0] == of[first]
        assert sorted(found) == sorted([*every, "service_credits", *found[6:]])
    error = await refused(admission, 3)
    assert "are left of the workspace's daily limit." in error.message
    assert limits(error)[0]["limit"] == 2e-9


async def test_what_a_request_draws_on_is_named_as_the_database_does() -> None:
    admission = limited(WORKSPACE, limit(WORKSPACE, 9, Reset.DAILY), limit(WORKSPACE, 19))
    facts = admission.loader.keys[KEY]
    admission.loader.keys[KEY] = replace(facts, limit=KeyLimit(5, include_byok=True))
    generation = await admit(admission, 3)
    hold = admission.controller._holds[generation]  # noqa: SLF001 - what is held
    claim = claim_of(hold, may_use_free=False)
    assert claim is not None
    assert [(*each, nano, each in claim.with_own) for each, nano in claim.amounts.items()] == [
        ("workspace", "w", "2026-03-11..2026-03-12", 3, False),
        ("workspace", "w", "", 3, False),
        ("key", KEY, "", 3, True),
        ("account", "account", "", 3, False),
    ]


async def test_its_name_follows_the_days_and_the_limit() -> None:
    admission = limited(WORKSPACE)

    async def windows() -> list[str]:
        generation = await admit(admission, 3)
        hold = admission.controller._holds[generation]  # noqa: SLF001 - what is held
        claim = claim_of(hold, may_use_free=False)
        assert claim is not None
        return [each.window for each in claim.amounts if each.scope == "key"]

    facts = admission.loader.keys[KEY]
    admission.loader.keys[KEY] = replace(facts, limit=KeyLimit(50, Reset.DAILY))
    assert await windows() == await windows() == ["2026-03-11..2026-03-12"]
    admission.clock.advance(1)
    assert await windows() == ["2026-03-12..2026-03-13"]
    admission.loader.keys[KEY] = replace(facts, limit=KeyLimit(50, Reset.MONTHLY))
    admission.controller.invalidate(None)
    assert await windows() == ["2026-03-01..2026-04-01"]


async def test_nobody_is_read_where_nobody_has_a_limit() -> None:
    admission = limited(WORKSPACE)
    for name in ("a", "b"):
        await admission.admit(1, end_user=end_user("w", name))
    assert admission.loader.reads == 1


def test_an_end_user_is_called_as_in_the_books() -> None:
    assert end_user("w", "a\0\ud800").id == "w:a\N{REPLACEMENT CHARACTER}?"
