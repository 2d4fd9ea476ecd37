"""Who may ask for interns and vaults."""

from __future__ import annotations

import pytest

from tollhouse.identity.admission import check_confinement, check_key, check_programme
from tollhouse.identity.policy import subject_of
from tollhouse.identity.types import KeyKind, Switches
from tollhouse.kernel.errors import NotFound, Unauthenticated
from tollhouse.testing.builders import api_key

INTERN = "0b9f1d8e-6d9a-4b3c-8a53-0a51f7f3c111"
OTHER = "0b9f1d8e-6d9a-4b3c-8a53-0a51f7f3c222"
CALLER = subject_of(api_key())
OWN = subject_of(api_key(kind=KeyKind.INTERN, intern_id=INTERN))


def test_a_management_key_is_refused_and_told_why() -> None:
    with pytest.raises(Unauthenticated) as refused:
        check_key(subject_of(api_key(kind=KeyKind.MANAGEMENT)))
    assert refused.value.message == (
        "Invalid or missing API key: a management key cannot use interns and vaults."
    )


def test_other_keys_are_not() -> None:
    check_key(CALLER)
    check_key(OWN)


def test_outside_the_programme_there_is_nothing() -> None:
    with pytest.raises(NotFound) as refused:
        check_programme(Switches(intern_programme=False, vault_writes=True))
    assert refused.value.message == "Not found."


def test_the_programme_is_another_switch_than_writes() -> None:
    check_programme(Switches(intern_programme=True, vault_writes=False))


@pytest.mark.parametrize("intern_id", [None, OTHER, "x", ""])
def test_an_interns_own_key_finds_nothing_but_its_intern(intern_id: str | None) -> None:
    with pytest.raises(NotFound) as refused:
        check_confinement(OWN, intern_id)
    assert refused.value.message == "Not found."


def test_an_interns_own_key_finds_its_intern() -> None:
    check_confinement(OWN, INTERN)
    check_confinement(OWN, INTERN.upper())


@pytest.mark.parametrize("intern_id", [None, OTHER])
def test_a_workspaces_key_is_not_confined(intern_id: str | None) -> None:
    check_confinement(CALLER, intern_id)
