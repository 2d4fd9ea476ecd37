"""What an operator changed in the settings, in the record of the installation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.audit.changes import after_changes, entry_of_change
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import INSTALLATION, AuditAction
from tollhouse.settings.sections import Settings
from tollhouse.settings.show import flat

if TYPE_CHECKING:
    from tollhouse.apps.core import Core

_OPERATOR: Final = "operator"


async def record_settings(settings: Settings, core: Core) -> None:
    """Record in what the settings differ from those of the last start; of the first, from none set.

    Secrets are masked, so that a secret that changes alone is not told.
    """
    audit = AuditService(core.clock)
    async with core.database.reading() as read:
        earlier = await audit.all_of(read, INSTALLATION, AuditAction.SETTINGS_CHANGED)
    defaults = flat(Settings(data_dir=settings.data_dir))
    before = after_changes(defaults, [entry.changes for entry in earlier])
    entry = entry_of_change(
        AuditAction.SETTINGS_CHANGED, _OPERATOR, "settings", before, flat(settings)
    )
    if not entry.changes:
        return
    async with core.database.writing() as write:
        await audit.record(write, INSTALLATION, [entry])
