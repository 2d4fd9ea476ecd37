"""The database and the services on it, which a server and a command without one both build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.accounting.ledger.service import LedgerService
from tollhouse.accounting.limits import AccountingRules, rules_of
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.apps.startup import worker_count
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

_REVOKED_ELSEWHERE_SECONDS = 1.0


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
    changes: Changes
    departures: Departures
    max_age_seconds: float | None
    """How old what is remembered of the database may be; None where nobody else writes to it."""


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


class Changes:
    """Passes on that something about an account changed, to whoever remembers it."""

    def __init__(self) -> None:
        self.heard_by: Callable[[str], None] | None = None
        self.hinted_to: Callable[[str], None] | None = None

    def tell(self, account_id: str) -> None:
        """Pass it on."""
        if self.heard_by is not None:
            self.heard_by(account_id)

    def hint(self, account_id: str) -> None:
        """Pass on a change that nobody has to wait for."""
        if self.hinted_to is not None:
            self.hinted_to(account_id)


class Departures:
    """Passes on that a workspace is being removed, to who keeps things for it."""

    def __init__(self) -> None:
        self.heard_by: Callable[[Write, Workspace, Manager], Awaitable[None]] | None = None

    async def tell(self, write: Write, workspace: Workspace, who: Manager) -> None:
        """Pass it on."""
        if self.heard_by is not None:
            await self.heard_by(write, workspace, who)


def build_core(url: sa.URL, settings: Settings) -> Core:
    """Return the services on a database whose schema is there."""
    database = open_database(url)
    clock, ids = SystemClock(), RandomIds()
    # An SQLite file has one server, which is one process if it has no workers; a PostgreSQL
    # database may have several.
    is_shared = database.dialect == "postgresql" or worker_count(settings) > 1
    max_age = _REVOKED_ELSEWHERE_SECONDS if is_shared else None
    journal = Journal(DataFolder(settings.data_dir).journal)
    rules, changes, departures = rules_of(settings.limits, settings.byok), Changes(), Departures()
    authenticator = Authenticator(database, clock, max_age)
    return Core(
        database=database,
        clock=clock,
        ids=ids,
        authenticator=authenticator,
        identity=IdentityService(
            clock,
            ids,
            authenticator,
            [each.slug for each in settings.guardrails],
            account_changed=changes.tell,
            workspace_leaves=departures.tell,
        ),
        accounting=AccountingService(
            clock, ids, rules=rules, invalidate=changes.tell, refresh=changes.hint
        ),
        ledger=LedgerService(clock, missing=journal.noted_missing),
        audit=AuditService(clock),
        rules=rules,
        changes=changes,
        departures=departures,
        max_age_seconds=max_age,
    )
