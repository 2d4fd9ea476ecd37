import json

import msgspec
import pytest

from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import (
    BUILT_IN,
    Endpoint,
    allowed,
    excerpt,
    flagged,
    objections,
    texts,
)
from tests.support.tables import tables
from tests.unit.inference.fakes import PRICE
from tollhouse.kernel.errors import Forbidden, Invalid

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
KEEPS = Endpoint("acme", "large-2026", PRICE)
KEEPS_NOTHING = Endpoint("acme", "large-2026", PRICE, keeps_data=False)


@pytest.mark.parametrize(
    "policy",
    [
        AccessPolicy("key"),
        AccessPolicy("key", allowed_models=("acme/*",)),
        AccessPolicy("key", allowed_providers=("acme",)),
        AccessPolicy("key", allowed_endpoints=("acme:large-*",)),
        AccessPolicy("key", blocked_models=("other/*",)),
        AccessPolicy("key", blocked_endpoints=("acme:small",)),
    ],
)
def test_what_is_allowed_may_be_asked(policy: AccessPolicy) -> None:
    assert objections([policy], "acme/large", KEEPS) == []


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            AccessPolicy("account", allowed_models=()),
            "The account's policy does not allow the model acme/large.",
        ),
        (
            AccessPolicy("workspace", blocked_models=("*/large",)),
            "The workspace's policy blocks the model acme/large.",
        ),
        (
            AccessPolicy("key", allowed_providers=("other",)),
            "The key's policy does not allow the provider acme.",
        ),
        (
            AccessPolicy("key", blocked_endpoints=("acme:large-2026",)),
            "The key's policy blocks the endpoint acme:large-2026.",
        ),
        (
            AccessPolicy("key", data_collection="deny"),
            "The key's policy denies data collection; acme keeps data.",
        ),
    ],
)
def test_what_is_not_allowed_has_its_reason(policy: AccessPolicy, reason: str) -> None:
    assert objections([policy], "acme/large", KEEPS) == [reason]


def test_a_provider_that_keeps_nothing_may_be_asked_where_collection_is_denied() -> None:
    assert objections([AccessPolicy("key", data_collection="deny")], "m", KEEPS_NOTHING) == []


def holds(pattern: str, text: str) -> bool:
    body = json.dumps({"messages": [{"content": [{"text": text}]}]}).encode()
    return flagged([AccessPolicy("key", patterns=(pattern,))], body) == [pattern]


@pytest.mark.parametrize(("pattern", "text", "found"), tables(__file__)["patterns"])
def test_a_pattern_finds_what_it_means(pattern: str, text: str, *, found: bool) -> None:
    assert holds(pattern, text) is found


def test_a_million_characters_are_looked_through() -> None:
    assert not holds("@email", "a" * 1_000_000)


def test_each_built_in_pattern_is_tried_above() -> None:
    assert set(BUILT_IN) == {"@email", "@credit_card", "@iban", "@api_key"}


def test_texts_are_found_wherever_they_stand() -> None:
    for body in ({"system": "secret"}, {"input": [{"output": "secret"}]}, {"a": [["secret"]]}):
        assert flagged([AccessPolicy("key", patterns=("secret",))], json.dumps(body).encode())


def test_the_patterns_of_all_policies_count_each_once() -> None:
    policies = [AccessPolicy("account", patterns=("a", "b")), AccessPolicy("key", patterns=("a",))]
    assert flagged(policies, b'{"x":"a"}') == ["a"]


def test_without_patterns_a_body_is_not_even_read() -> None:
    assert flagged([AccessPolicy("key")], b"no json") == []


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"messages": [{"content": "first"}, {"role": "user", "content": "last"}]}, "last"),
        ({"messages": [{"content": [{"text": "a"}, {"text": "b"}]}]}, "a b"),
        ({"input": "all of it"}, "all of it"),
        ({"prompt": ["a", "b"]}, "b"),
        ({"messages": []}, ""),
        ({}, ""),
    ],
)
def test_an_excerpt_is_what_was_said_last(body: dict[str, object], shown: str) -> None:
    assert excerpt(_fields.decode(json.dumps(body).encode())) == shown


def test_a_long_excerpt_is_cut_in_the_middle() -> None:
    shown = excerpt({"input": msgspec.Raw(b'"begin%bend"' % (b"x" * 1000))})
    assert len(shown) <= 100
    assert shown.startswith("begin")
    assert "..." in shown
    assert shown.endswith("end")


def test_the_texts_of_a_request_come_as_they_stand_and_each_once() -> None:
    inner = '{"d": "three"}'
    body = {"a": ["one", {"b": "two", "c": [inner]}, "one"], "e": 1, "f": "one"}
    said = ["a", "one", "b", "two", "c", inner, "d", "three", "e", "f"]
    assert texts(_fields.decode(json.dumps(body).encode())) == said


def test_names_of_fields_are_texts_too() -> None:
    policy = AccessPolicy("key", patterns=("secret",))
    assert flagged([policy], b'{"input":{"my-secret":1}}') == ["secret"]


@pytest.mark.parametrize("number", [b"1e999", b"9" * 6000])
def test_a_number_that_nobody_can_read_is_refused(number: bytes) -> None:
    with pytest.raises(Invalid):
        flagged([AccessPolicy("key", patterns=("a",))], b'{"x":%b}' % number)


def test_endpoints_that_are_all_blocked_are_forbidden() -> None:
    def reachable(policy: AccessPolicy) -> list[Endpoint]:
        return allowed([policy], [KEEPS, KEEPS_NOTHING], lambda each: ("acme/large", each))

    assert reachable(AccessPolicy("key", data_collection="deny")) == [KEEPS_NOTHING]
    with pytest.raises(Forbidden) as caught:
        reachable(AccessPolicy("key", blocked_models=("acme/*",)))
    assert caught.value.metadata["reasons"] == ["The key's policy blocks the model acme/large."], (
        "each reason once"
    )
