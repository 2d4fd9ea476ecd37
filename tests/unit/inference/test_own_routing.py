"""Who is asked with whose key, in which order: an oracle says it rule by rule, for any keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.identity import KeyKind, Subject
from tests.support.seams.inference import (
    FORMATS,
    Dialect,
    Endpoint,
    Health,
    Model,
    OwnKeyUse,
    Preferences,
    failure,
    find_candidates,
    usable_by,
)
from tests.unit.inference.fakes import PRICE
from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.secret import Secret
from tollhouse.provider_keys.types import KeyRules, OwnKey, ProviderKey

if TYPE_CHECKING:
    from collections.abc import Sequence

ADAPTERS = FORMATS["/chat/completions"].parse(
    b'{"model":"m","messages":[{"role":"user"}]}', {}, b""
)
PROVIDERS = ("a", "b", "c")
ENDPOINTS = {
    slug: Endpoint(slug, f"{slug}-1", PRICE, provider_name=slug, keeps_data=slug != "a")
    for slug in PROVIDERS
}
MODELS = (
    Model("m/1", "", "", 9, None, (ENDPOINTS["a"], ENDPOINTS["b"]), aliases=("one",)),
    Model("m/2", "", "", 9, None, (ENDPOINTS["b"], ENDPOINTS["c"], ENDPOINTS["a"])),
)
NAMES = ("m/1", "one", "m/2", "m/3")
CALLERS = st.builds(
    Subject,
    key_hash=st.sampled_from(["k1", "k2"]),
    kind=st.just(KeyKind.API),
    operator=st.just(value=False),
    account_id=st.just("acc"),
    workspace_id=st.sampled_from(["w1", "w2"]),
    creator_user_id=st.sampled_from([None, "u1", "u2"]),
    intern_id=st.none(),
    label=st.just("l"),
    policies=st.just(()),
    payer_hash=st.sampled_from([None, "k3"]),
)


def lists(*of: str) -> st.SearchStrategy[tuple[str, ...] | None]:
    return st.none() | st.lists(st.sampled_from(of), unique=True, max_size=2).map(tuple)


RULES = st.builds(
    KeyRules,
    disabled=st.sampled_from([False, False, True]),
    is_fallback=st.booleans(),
    is_required=st.booleans(),
    is_byok_only=st.booleans(),
    sort_order=st.integers(0, 2),
    allowed_models=lists(*NAMES),
    allowed_user_ids=lists("u1", "u2"),
    allowed_api_key_hashes=lists("k1", "k2", "k3"),
    declared_zdr=st.sampled_from([None, False, True]),
).filter(lambda rules: not (rules.is_fallback and rules.is_byok_only))


@st.composite
def own_keys(draw: st.DrawFn) -> list[OwnKey]:
    """Draw keys in the order of their places, as they come from the database."""
    found: list[OwnKey] = []
    for number in range(draw(st.integers(0, 5))):
        stored = ProviderKey(
            id=f"id-{number}",
            account_id="acc",
            workspace_id=draw(st.sampled_from(["w1", "w1", "w2"])),
            provider=draw(st.sampled_from(PROVIDERS)),
            label="...",
            rules=draw(RULES),
            version=1,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            vault_id="v",
            sealed=b"",
        )
        opens = draw(st.sampled_from([True, True, False]))
        found.append(OwnKey(stored, Secret("text") if opens else None))
    return sorted(found, key=lambda key: (key.stored.provider, key.rules.sort_order))


PREFERENCES = st.builds(
    Preferences,
    order=st.lists(st.sampled_from(PROVIDERS), unique=True).map(tuple),
    ignore=st.lists(st.sampled_from(PROVIDERS), max_size=1).map(tuple),
    only=st.none() | st.lists(st.sampled_from(PROVIDERS), min_size=2).map(tuple),
    allow_fallbacks=st.booleans(),
    deny_data_collection=st.sampled_from([False, False, True]),
    zdr=st.sampled_from([False, False, True]),
)
Place = tuple[str, str, str | None]


def expected(
    caller: Subject,
    keys: Sequence[OwnKey],
    wanted: Preferences,
    refused: set[str],
    failed: tuple[set[str], set[str]],
) -> list[Place]:
    """Return the models, providers and own keys in the order of asking; by the rules, one by one.

    `failed` are the providers that failed with the gateway's key alone, and with any key.
    """
    mine = [
        key
        for key in keys
        if not key.rules.disabled
        and key.stored.workspace_id == caller.workspace_id
        and (
            key.rules.allowed_user_ids is None
            or caller.creator_user_id in key.rules.allowed_user_ids
        )
        and (
            (hashes := key.rules.allowed_api_key_hashes) is None
            or caller.key_hash in hashes
            or caller.payer_hash in hashes
        )
    ]
    asked: list[Place] = []
    for model in MODELS:
        rows: list[tuple[tuple[int, ...], Place]] = []
        for at, endpoint in enumerate(model.endpoints):
            slug = endpoint.provider
            if slug in wanted.ignore or (wanted.only is not None and slug not in wanted.only):
                continue
            if wanted.deny_data_collection and endpoint.keeps_data:
                continue
            named = slug in wanted.order
            place = wanted.order.index(slug) if named else len(wanted.order)
            there = [key for key in mine if key.stored.provider == slug]
            covering = [
                key
                for key in there
                if key.rules.allowed_models is None
                or {model.id, *model.aliases} & set(key.rules.allowed_models)
            ]
            is_closed = any(key.rules.is_byok_only for key in there) or any(
                key.rules.is_required for key in covering
            )
            if not is_closed and not wanted.zdr:
                cools = not named and slug in failed[0] | failed[1]
                rows.append(((1, place, cools, at), (model.id, slug, None)))
            for number, key in enumerate(covering):
                if key.secret is None or (wanted.zdr and key.rules.declared_zdr is not True):
                    continue
                group = 2 if key.rules.is_fallback else 0
                if key.stored.id in refused:
                    group = 4 if key.rules.is_fallback else 3
                cools = not named and slug in failed[1]
                rows.append(((group, place, cools, at, number), (model.id, slug, key.stored.id)))
        rows.sort()
        if not wanted.allow_fallbacks:
            rows = [row for row in rows if row[1][1] == rows[0][1][1]]
        asked += [row for _, row in rows]
    return asked


@given(
    caller=CALLERS,
    keys=own_keys(),
    wanted=PREFERENCES,
    refusals=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([401, 402, 403, 429, 404]))),
    failures=st.lists(st.tuples(st.sampled_from(PROVIDERS), st.sampled_from([401, 429, 500, 503]))),
)
def test_the_order_is_that_of_the_rules(
    caller: Subject,
    keys: list[OwnKey],
    wanted: Preferences,
    refusals: list[tuple[int, int]],
    failures: list[tuple[str, int]],
) -> None:
    health, refused, failed = Health(), set[str](), (set[str](), set[str]())
    for number, status in refusals:
        for key in keys:
            if key.stored.id == f"id-{number}":
                endpoint = ENDPOINTS[key.stored.provider]
                health.failed(endpoint, failure("P", status, own_key="..."), 0.0, key)
                refused |= {key.stored.id} if status != 404 else set()
    for slug, status in failures:
        health.failed(ENDPOINTS[slug], failure("P", status), 0.0)
        failed[status >= 500].add(slug)
    use = OwnKeyUse(
        usable_by(keys, caller),
        lambda key: health.key_cools(key, 1.0),
        lambda endpoint: health.is_out(endpoint, 1.0),
    )
    oracle = expected(caller, keys, wanted, refused, failed)
    try:
        found = find_candidates(
            MODELS,
            ADAPTERS,
            wanted,
            dialects_of=lambda _: {Dialect.CHAT},
            cooling=lambda endpoint: health.is_cooling(endpoint, 1.0),
            own_keys=use,
        )
    except Unavailable:
        assert oracle == []
        return
    assert [
        (each.model.id, each.endpoint.provider, each.own_key and each.own_key.stored.id)
        for each in found
    ] == oracle


def test_a_key_in_place_of_a_refused_one_is_asked_at_once() -> None:
    rules, now = KeyRules(), datetime(2026, 1, 1, tzinfo=UTC)
    stored = ProviderKey("i", "acc", "w1", "a", "...", rules, 1, now, "v", b"")
    health, old = Health(), OwnKey(stored, Secret("text"))
    health.failed(ENDPOINTS["a"], failure("P", 401, own_key="..."), 0.0, old)
    new = OwnKey(replace(stored, version=2), Secret("other"))
    assert [health.key_cools(key, 1.0) for key in (old, new)] == [True, False]
    assert not health.is_cooling(ENDPOINTS["a"], 1.0)
