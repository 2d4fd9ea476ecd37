"""What everything of interns uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.audit.service import AuditService
    from tollhouse.identity.intern_keys import InternKeys
    from tollhouse.identity.service import IdentityService
    from tollhouse.interns.ports import News
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.database import Database
    from tollhouse.vault.service import VaultService


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operator decides of interns."""

    most: int
    """Interns that one creator may have in a workspace."""
    public_url: str | None = None
    """Their address, with `{intern}` for the id of one; None: the gateway's own."""


@dataclass(frozen=True, slots=True)
class Context:
    """What everything of interns uses."""

    database: Database
    identity: IdentityService
    keys: InternKeys
    vaults: VaultService
    audit: AuditService
    news: News
    clock: Clock
    ids: IdSource
    rules: Rules
