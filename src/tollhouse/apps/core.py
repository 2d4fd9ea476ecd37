"""The database and the services on it, which a server and a command without one both build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.accounting.ledger import LedgerService
from tollhouse.accounting.limits import AccountingRules, rules_of
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.settlement.records import JournalNotes
from tollhouse.audit.service import AuditService
from tollhouse.identity.access import Authenticator
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.clock import Clock, SystemClock
from tollhouse.kernel.ids import IdSource, RandomIds
from tollhouse.storage.data_folder import DataFolder
from tollhouse.storage.database import Database, Write, open_database
from tollhouse.storage.revision import (
    create_schema,
    current,
    is_behind,
    require_head,
    upgrade_in_child,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import sqlalchemy as sa

    from tollhouse.identity.types import Manager, Workspace
    from tollhouse.settings.sections import Settings


@dataclass(frozen=True, slots=True)
class Core:
    """The database and the services above it."""

    database: Database
    clock: Clock
    ids: IdSource
    authenticator: Authenticator
    identity: IdentityService
    accounting: AccountingService
    ledger: LedgerService
    audit: AuditService
    rules: AccountingRules
    departures: Departures
    has_siblings: bool
    """Whether other processes of this server use the data folder."""
    is_shared: bool
    """Whether other processes may use the database: on PostgreSQL nobody keeps them away."""


async def bring_up_to_date(database: Database) -> None:
    """Give a database the schema that this program needs.

    An empty SQLite file gets it at once; another one is migrated where it must be, in a child
    process. On PostgreSQL that is the operator's decision.

    Raises:
        StartError: It is not up to date, or cannot be brought there.
    """
    if database.dialect == "sqlite":
        found = await current(database)
        is_made = found is None and await create_schema(database)
        if not is_made and is_behind(database.url, found):
            await upgrade_in_child(database.url)
    await require_head(database)


class Departures:
    """Passes on that a workspace is being removed, to who keeps things for it."""

    def __init__(self) -> None:
        self.heard_by: Callable[[Write, Workspace, Manager], Awaitable[None]] | None = None

    async def tell(self, write: Write, workspace: Workspace, who: Manager) -> None:
        """Pass it on."""
        if self.heard_by is not None:
            await self.heard_by(write, workspace, who)


def build_core(url: sa.URL, settings: Settings, *, has_siblings: bool = False) -> Core:
    """Return the services on a database whose schema is there.

    `has_siblings`: other processes of this server use it, too.
    """
    database = open_database(url)
    clock, ids = SystemClock(), RandomIds()
    notes = JournalNotes(DataFolder(settings.data_dir).journal)
    rules, departures = rules_of(settings.limits, settings.byok), Departures()
    return Core(
        database=database,
        clock=clock,
        ids=ids,
        authenticator=Authenticator(database, clock),
        identity=IdentityService(
            clock,
            ids,
            [each.slug for each in settings.guardrails],
            workspace_leaves=departures.tell,
        ),
        accounting=AccountingService(clock, ids, rules=rules),
        ledger=LedgerService(clock, missing=notes.missing),
        audit=AuditService(clock),
        rules=rules,
        departures=departures,
        has_siblings=has_siblings,
        is_shared=has_siblings or database.dialect == "postgresql",
    )
