"""Who is asked with whose key, in which order: an oracle says it rule by rule, for any keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, TypeVar

from hypothesis import given, settings
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

BODY = b'{"model":"m","messages":[{"role":"user"}]}'
ADAPTERS = FORMATS["/chat/completions"].parse(
    b'{"model":"m","messages":[{"role":"user"}]}', {}, b""
)
PROVIDERS = ("a", "b", "c")
ZDR = (None, False, True)
USUALLY = 0.85
ENDPOINTS = {
    slug: Endpoint(slug, f"{slug}-1", PRICE, provider_name=slug, keeps_data=slug != "a")
    for slug in PROVIDERS
}
MODELS = (
    Model("m/1", "", "", 9, None, (ENDPOINTS["a"], ENDPOINTS["b"]), aliases=("one",)),
    Model("m/2", "", "", 9, None, (ENDPOINTS["b"], ENDPOINTS["c"], ENDPOINTS["a"])),
)
T = TypeVar("T")
Place = tuple[str, str, str | None]


class Drawn:
    """A caller, keys and preferences, most of them plain, so that many rules meet."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.keys = sorted(
            map(self.key, range(self.random.randint(0, 6))),
            key=lambda key: (key.stored.provider, key.rules.sort_order),
        )
        self.caller = Subject(
            key_hash=self.one("k1", "k2"),
            kind=KeyKind.API,
            operator=False,
            account_id="acc",
            workspace_id=self.mostly("w1", "w2"),
            creator_user_id=self.one(None, "u1"),
            intern_id=None,
            label="l",
            policies=(),
            payer_hash=self.mostly(None, "k3"),
        )
        self.wanted = Preferences(
            order=tuple(self.random.sample(PROVIDERS, self.one(0, 0, 1, 2))),
            ignore=self.mostly((), (self.one(*PROVIDERS),)),
            only=self.mostly(None, ("a", "b")),
            allow_fallbacks=not self.seldom(),
            deny_data_collection=self.seldom(),
            zdr=self.seldom(),
        )
        self.refusals = [
            (self.one(*self.keys), self.one(401, 402, 403, 429, 404))
            for _ in range(self.one(0, 0, 1, 2) if self.keys else 0)
        ]
        self.failures = [
            (self.one(*PROVIDERS), self.one(401, 429, 500, 503)) for _ in range(self.one(0, 0, 1))
        ]

    def one(self, *values: T) -> T:
        return self.random.choice(values)

    def seldom(self) -> bool:
        return self.random.random() > USUALLY

    def mostly(self, usual: T, other: T) -> T:
        return other if self.seldom() else usual

    def some(self, *of: str) -> tuple[str, ...] | None:
        return self.mostly(None, tuple(self.random.sample(of, self.random.randint(0, 2))))

    def key(self, number: int) -> OwnKey:
        fallback = self.seldom() or self.seldom()
        rules = KeyRules(
            disabled=self.seldom(),
            is_fallback=fallback,
            is_required=self.seldom(),
            is_byok_only=not fallback and self.seldom(),
            sort_order=self.one(0, 1, 2),
            allowed_models=self.some("m/1", "one", "m/2", "m/3"),
            allowed_user_ids=self.some("u1", "u2"),
            allowed_api_key_hashes=self.some("k1", "k2", "k3"),
            declared_zdr=self.one(*ZDR),
        )
        return own_key(f"id-{number}", self.one(*PROVIDERS), rules, self.mostly("w1", "w2"))


def own_key(key_id: str, provider: str, rules: KeyRules, workspace: str = "w1") -> OwnKey:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    stored = ProviderKey(key_id, "acc", workspace, provider, "...", rules, 1, now, "v", b"")
    return OwnKey(stored, None if key_id == "id-5" else Secret("text"))


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


@settings(max_examples=1000)
@given(seed=st.integers(0, 2**64))
def test_the_order_is_that_of_the_rules(seed: int) -> None:
    drawn = Drawn(seed)
    caller, keys, wanted = drawn.caller, drawn.keys, drawn.wanted
    health, refused, failed = Health(), set[str](), (set[str](), set[str]())
    for key, status in drawn.refusals:
        endpoint = ENDPOINTS[key.stored.provider]
        health.failed(endpoint, failure("P", status, own_key="..."), 0.0, key)
        refused |= {key.stored.id} if status != 404 else set()
    for slug, status in drawn.failures:
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
    health, old = Health(), own_key("i", "a", KeyRules())
    health.failed(ENDPOINTS["a"], failure("P", 401, own_key="..."), 0.0, old)
    new = OwnKey(replace(old.stored, version=2), Secret("other"))
    assert [health.key_cools(key, 1.0) for key in (old, new)] == [True, False]
    assert not health.is_cooling(ENDPOINTS["a"], 1.0)
