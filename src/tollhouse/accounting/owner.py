"""Whose budgets requests draw on beside those of their keys, and what these may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tollhouse.accounting.types import NO_SPEND, BudgetScope, Spend

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from tollhouse.accounting.types import Reset


class Owner(NamedTuple):
    """Whose budgets requests draw on beside those of their keys: all that they have in common."""

    scope: BudgetScope
    """`WORKSPACE`, `MEMBER` or `END_USER`."""
    id: str
    """Of the workspace or the user; of an end user see `end_user`."""


def end_user(workspace_id: str, name: str) -> Owner:
    """Return the end user of a workspace whom its requests call so."""
    if not name.isascii() or "\0" in name:  # as it is booked
        name = name.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return Owner(BudgetScope.END_USER, f"{workspace_id}:{name}")


@dataclass(frozen=True, slots=True)
class OwnerLimit:
    """What all requests of a workspace, a person or an end user may use together."""

    owner: Owner
    id: str
    limit_nano: int
    reset: Reset | None
    """When it starts anew; None: never. There is one limit for each."""
    include_byok: bool
    """Whether own-provider-key use counts: for all limits of an owner, or for none."""
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """What the books say that an owner, or a key, has used, and what its batches have reserved."""

    total: Spend = NO_SPEND
    days: Mapping[date, Spend] = field(default_factory=dict[Any, Any])
    """As far back as a week or a month reaches."""
    reserved_nano: int = 0
    reserved_with_own_nano: int = 0
    """What limits hold of that which include own keys."""
    last_used_at: datetime | None = None
    """Of keys, where the use over all time was asked for."""

    def held_for_batches(self, *, include_byok: bool) -> int:
        """Return what a limit holds for batches."""
        return self.reserved_with_own_nano if include_byok else self.reserved_nano
