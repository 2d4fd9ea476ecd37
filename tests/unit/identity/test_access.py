"""Who may ask for interns and vaults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from tests.support.builders import api_key
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import KeyKind, Switches, subject_of
from tollhouse.kernel.errors import NotFound, NotOffered, Unauthenticated

if TYPE_CHECKING:
    from tollhouse.identity.types import Subject

INTERN = "0b9f1d8e-6d9a-4b3c-8a53-0a51f7f3c111"
OTHER = "0b9f1d8e-6d9a-4b3c-8a53-0a51f7f3c222"
CALLER = subject_of(api_key())
OWN = subject_of(api_key(kind=KeyKind.INTERN, intern_id=INTERN))
MANAGER = subject_of(api_key(kind=KeyKind.MANAGEMENT))
INSIDE = Switches(intern_programme=True, vault_writes=False)
OUTSIDE = Switches(intern_programme=False, vault_writes=True)


async def admitted(
    caller: Subject, intern_id: str | None = None, switches: Switches = INSIDE
) -> Switches:
    identity: Any = SimpleNamespace(switches=AsyncMock(return_value=switches))
    read: Any = None
    return await IdentityService.authorize_intern_access(identity, read, caller, intern_id)


@pytest.mark.parametrize("switches", [INSIDE, OUTSIDE], ids=["inside", "outside"])
async def test_a_management_key_is_refused_and_told_why(switches: Switches) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await admitted(MANAGER, INTERN, switches)
    assert refused.value.message == (
        "Invalid or missing API key: a management key cannot use interns and vaults."
    )


@pytest.mark.parametrize("caller", [CALLER, OWN], ids=["workspace", "intern"])
async def test_outside_the_programme_there_is_nothing(caller: Subject) -> None:
    with pytest.raises(NotOffered) as refused:
        await admitted(caller, INTERN, OUTSIDE)
    assert refused.value.message == "Not found."


async def test_who_is_admitted_is_told_what_its_workspace_may_do() -> None:
    assert await admitted(CALLER) == INSIDE


@pytest.mark.parametrize("intern_id", [None, OTHER, "x", ""])
async def test_an_interns_own_key_finds_nothing_but_its_intern(intern_id: str | None) -> None:
    with pytest.raises(NotFound) as refused:
        await admitted(OWN, intern_id)
    assert refused.value.message == "Not found."


@pytest.mark.parametrize("intern_id", [INTERN, INTERN.upper()])
async def test_an_interns_own_key_finds_its_intern(intern_id: str) -> None:
    assert await admitted(OWN, intern_id) == INSIDE


@pytest.mark.parametrize("intern_id", [None, OTHER])
async def test_a_workspaces_key_is_not_confined(intern_id: str | None) -> None:
    assert await admitted(CALLER, intern_id) == INSIDE
