from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.builders import api_key
from tests.support.seams.identity import (
    CALLER,
    PATTERN_NAMES,
    PREFIX,
    AccessPolicy,
    IssuedKey,
    KeyKind,
    LocalOperator,
    PolicyBody,
    billed_to,
    check_guardrails,
    hash_key,
    key_holder,
    manager,
    mask_key,
    new_key_text,
    subject_of,
)
from tollhouse.kernel.errors import Invalid, Unauthenticated
from tollhouse.kernel.ids import RandomIds

LOCAL = LocalOperator()
SECOND = timedelta(seconds=1)


def test_a_subject_has_the_facts_of_its_key() -> None:
    key = api_key(kind=KeyKind.INTERN, intern_id="i", creator_user_id="u")
    facts = subject_of(key)
    assert (facts.key_hash, facts.kind, facts.operator) == (key.hash, KeyKind.INTERN, False)
    assert (facts.account_id, facts.workspace_id) == (key.account_id, key.workspace_id)
    assert (facts.creator_user_id, facts.intern_id, facts.label) == ("u", "i", key.label)


class TestManager:
    def test_a_management_key_manages_in_the_name_of_its_user(self) -> None:
        key = api_key(kind=KeyKind.MANAGEMENT, creator_user_id="ada")
        assert manager(subject_of(key)).user_id == "ada"


class TestInference:
    def test_never_runs_without_a_key(self) -> None:
        with pytest.raises(Unauthenticated):
            billed_to({CALLER: LOCAL})


def test_a_local_command_holds_no_key() -> None:
    with pytest.raises(Unauthenticated):
        key_holder(LOCAL)


def test_a_policy_may_name_any_guardrail_that_there_is() -> None:
    check_guardrails(AccessPolicy("key"), ())
    check_guardrails(AccessPolicy("key", guardrails=("b", "a")), ["a", "b"])


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["privacy", "other"], "did you mean 'privacy'?"),
        (["b", "a"], "there are: a, b."),
        ([], "there are: none."),
    ],
)
def test_a_policy_that_names_an_unknown_guardrail_is_refused(known: list[str], hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_guardrails(AccessPolicy("key", guardrails=("privcy",)), known)
    assert caught.value.message == f"guardrails: no guardrail is called 'privcy'; {hint}"


@pytest.mark.parametrize("text", ["@acme.example", "*@phone", "@", "@2026", "me@phone", "@a b"])
def test_a_text_with_an_at_sign_that_is_no_name_stands_for_itself(text: str) -> None:
    assert PolicyBody(patterns=[text]).policy("key").patterns == (text,)


def test_the_known_names_are_taken() -> None:
    assert PolicyBody(patterns=[*PATTERN_NAMES]).policy("key").patterns == PATTERN_NAMES


@pytest.mark.parametrize("name", ["@phone", "@Email", "@credit-card", "@emails"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="@email, @credit_card, @iban, @api_key"):
        PolicyBody(patterns=[name])


def test_names_of_models_may_begin_with_an_at_sign() -> None:
    assert PolicyBody(blocked_models=["@cf"]).policy("key").blocked_models == ("@cf",)


SHOWN = 6
material = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=43)


def test_a_key_says_what_it_is_and_has_256_random_bits() -> None:
    text = new_key_text(RandomIds())
    assert text.startswith("sk-th-v1-")
    assert len(text) == len(PREFIX) + 43


def test_any_header_text_can_be_hashed() -> None:
    assert len(hash_key("sk-th-v1-\xff\udcff")) == 64


@given(material)
def test_a_label_shows_six_characters_of_the_secret_part(random: str) -> None:
    label = mask_key(PREFIX + random)
    assert label == f"{PREFIX}{random[:3]}...{random[-3:]}"
    assert len(label) - len(PREFIX) - len("...") == SHOWN


@given(material)
def test_a_label_does_not_contain_the_secret_part(random: str) -> None:
    assert random not in mask_key(PREFIX + random)


def test_the_text_of_a_new_key_is_in_no_repr() -> None:
    issued = IssuedKey(api_key(), "sk-th-v1-the-secret-part")
    assert "the-secret-part" not in repr(issued)
    assert "the-secret-part" not in f"{issued}"
