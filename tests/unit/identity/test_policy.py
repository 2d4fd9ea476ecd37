from datetime import timedelta

import pytest

from tests.support.builders import api_key
from tests.support.clock import START
from tollhouse.identity.access import CALLER, billed_to, key_holder, manager, operator, usable
from tollhouse.identity.types import (
    AccessPolicy,
    KeyKind,
    LocalOperator,
    Manager,
    Subject,
    check_guardrails,
    subject_of,
)
from tollhouse.kernel.errors import Forbidden, Invalid, NotFound, Unauthenticated

LOCAL = LocalOperator()
ANYONE = Manager(account_id=None, workspace_id=None, operator=True)
OF_ACME = Manager(account_id="acme", workspace_id="one", operator=False)
SECOND = timedelta(seconds=1)


def subject(kind: KeyKind, *, runs_everything: bool = False) -> Subject:
    intern = "intern" if kind is KeyKind.INTERN else None
    return subject_of(
        api_key(kind=kind, operator=runs_everything, account_id="acme", intern_id=intern)
    )


class TestUsable:
    def test_a_plain_key_is(self) -> None:
        assert usable(api_key(), START)

    def test_a_disabled_key_is_not(self) -> None:
        assert not usable(api_key(disabled=True), START)

    def test_a_key_is_until_it_expires(self) -> None:
        assert usable(api_key(expires_at=START), START - SECOND)

    def test_a_key_is_not_from_the_instant_it_expires(self) -> None:
        assert not usable(api_key(expires_at=START), START)


def test_a_subject_has_the_facts_of_its_key() -> None:
    key = api_key(kind=KeyKind.INTERN, intern_id="i", creator_user_id="u")
    facts = subject_of(key)
    assert (facts.key_hash, facts.kind, facts.operator) == (key.hash, KeyKind.INTERN, False)
    assert (facts.account_id, facts.workspace_id) == (key.account_id, key.workspace_id)
    assert (facts.creator_user_id, facts.intern_id, facts.label) == ("u", "i", key.label)


class TestManager:
    def test_a_management_key_manages_its_account(self) -> None:
        who = manager(subject(KeyKind.MANAGEMENT))
        assert (who.account_id, who.workspace_id, who.operator) == ("acme", "workspace", False)

    def test_a_management_key_manages_in_the_name_of_its_user(self) -> None:
        key = api_key(kind=KeyKind.MANAGEMENT, creator_user_id="ada")
        assert manager(subject_of(key)).user_id == "ada"

    def test_a_local_command_manages_everything(self) -> None:
        assert manager(LOCAL) == ANYONE

    @pytest.mark.parametrize("kind", [KeyKind.API, KeyKind.INTERN])
    def test_other_keys_manage_nothing(self, kind: KeyKind) -> None:
        with pytest.raises(Forbidden):
            manager(subject(kind))

    def test_the_refusal_can_be_a_401(self) -> None:
        with pytest.raises(Unauthenticated):
            manager(subject(KeyKind.API), Unauthenticated)


class TestOperator:
    def test_an_operators_key_runs_the_installation(self) -> None:
        assert operator(subject(KeyKind.MANAGEMENT, runs_everything=True)).operator

    def test_a_local_command_runs_the_installation(self) -> None:
        assert operator(LOCAL).operator

    def test_a_plain_management_key_does_not(self) -> None:
        with pytest.raises(Forbidden):
            operator(subject(KeyKind.MANAGEMENT))


class TestInference:
    @pytest.mark.parametrize("kind", [KeyKind.API, KeyKind.INTERN])
    def test_runs_with_an_api_key_and_an_interns_key(self, kind: KeyKind) -> None:
        assert billed_to({CALLER: subject(kind)}).kind is kind

    def test_never_runs_with_a_management_key(self) -> None:
        with pytest.raises(Forbidden):
            billed_to({CALLER: subject(KeyKind.MANAGEMENT)})

    def test_never_runs_without_a_key(self) -> None:
        with pytest.raises(Unauthenticated):
            billed_to({CALLER: LOCAL})


def test_a_key_holder_came_with_a_key() -> None:
    assert key_holder(subject(KeyKind.MANAGEMENT)).account_id == "acme"


def test_a_local_command_holds_no_key() -> None:
    with pytest.raises(Unauthenticated):
        key_holder(LOCAL)


class TestAccountFor:
    def test_is_ones_own_where_none_is_named(self) -> None:
        assert OF_ACME.account_for(None) == "acme"

    def test_is_the_one_that_an_operator_names(self) -> None:
        assert ANYONE.account_for("other") == "other"

    def test_refuses_to_know_a_foreign_account(self) -> None:
        with pytest.raises(NotFound):
            OF_ACME.account_for("other")

    def test_wants_a_name_from_an_operator_who_has_no_account(self) -> None:
        with pytest.raises(Invalid, match="account_id"):
            ANYONE.account_for(None)


@pytest.mark.parametrize(
    ("who", "account", "seen"),
    [(ANYONE, "other", True), (OF_ACME, "acme", True), (OF_ACME, "other", False)],
)
def test_a_manager_sees_its_own_account_and_an_operator_all(
    who: Manager, account: str, *, seen: bool
) -> None:
    assert who.sees_account(account) is seen


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
