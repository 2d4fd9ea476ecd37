"""What everything of the vault uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.audit.service import AuditService
    from tollhouse.identity.service import IdentityService
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.database import Database
    from tollhouse.vault.keyring import Keyring


@dataclass(frozen=True, slots=True)
class Context:
    """What everything of the vault uses."""

    database: Database
    identity: IdentityService
    audit: AuditService
    keyring: Keyring
    clock: Clock
    ids: IdSource
    changed: Callable[[str], None]
    """Told a vault's id once something in it changed; must not raise."""
    release_unbound: bool = False
    """Whether a secret without hosts goes to any."""
