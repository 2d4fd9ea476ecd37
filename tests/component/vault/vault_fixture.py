"""The vault's services on a real database."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.support.builders import OPERATOR, Tenant
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.identity import (
    Authenticator,
    IdentityService,
    Manager,
    Subject,
    Workspace,
    subject_of,
)
from tollhouse.audit.chain import ChainVerifier, exported
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import AuditRow, ChainFault
from tollhouse.kernel.pages import Window
from tollhouse.kernel.secret import Secret
from tollhouse.storage.database import Database, Write
from tollhouse.vault.disclosures import ResolutionCache
from tollhouse.vault.envelope import new_key
from tollhouse.vault.key_encryption import KeyEncryption, Keyring, SymmetricKeys
from tollhouse.vault.maintenance import ImportedSecret, VaultMaintenance
from tollhouse.vault.service import VaultContext, VaultService
from tollhouse.vault.types import NewSecret, Resolved, StoredSecret, VaultKind

HOSTS = ("api.example.com",)
ALL = Window(0, 100)


@dataclass(frozen=True, slots=True)
class Intern:
    """A subject of the vault."""

    id: str
    vault_id: str


class VaultFixture:
    """A tenant in the programme, and the vault's services."""

    def __init__(
        self,
        database: Database,
        tenant: Tenant,
        clock: FakeClock,
        ids: SequentialIds,
        keys: KeyEncryption | None = None,
    ) -> None:
        self.database = database
        self.tenant = tenant
        self.clock = clock
        self.ids = ids
        self.kek = new_key()
        self.keys = keys or SymmetricKeys([self.kek])
        self.authenticator = Authenticator(database, clock)
        self.identity = IdentityService(clock, ids, workspace_leaves=self._leaves)
        self.audit = AuditService(clock)
        self.restart_with(self.keys)
        self.caller: Subject = subject_of(tenant.key)

    def restart_with(self, keys: KeyEncryption) -> None:
        """Build the services anew with some keys and empty caches."""
        self.keys = keys
        self.context = VaultContext(
            self.database,
            self.identity,
            self.audit,
            Keyring(keys),
            self.clock,
            self.ids,
        )
        self.service = VaultService(self.context)
        self.maintenance = VaultMaintenance(self.context, self.service)
        self.resolutions = ResolutionCache(self.database, self.service)

    async def set_switches(self, **switches: bool) -> None:
        """Set `intern_programme` or `vault_writes` of the account."""
        async with self.database.writing() as write:
            await self.identity.change_account(write, OPERATOR, self.tenant.account.id, **switches)

    async def workspace(self, slug: str) -> Subject:
        async with self.database.writing() as write:
            made = await self.identity.create_workspace(
                write, self.tenant.account.id, {"name": slug, "slug": slug}, None
            )
        return replace(self.caller, workspace_id=made.id)

    async def intern(self, attached: str | None = None, caller: Subject | None = None) -> Intern:
        asked = caller or self.caller
        own = await self.service.new_vault(asked.account_id, asked.workspace_id, VaultKind.INTERN)
        intern_id = self.ids.uuid()
        async with self.database.writing() as write:
            await self.service.add_subject(write, intern_id, own, attached)
        return Intern(intern_id, own.id)

    async def delete_intern(self, intern: Intern) -> None:
        async with self.database.writing() as write:
            await self.service.forget_subject(write, intern.id, "operator")

    async def put(
        self,
        name: str,
        value: str = "value",
        hosts: tuple[str, ...] = HOSTS,
        intern: Intern | None = None,
        caller: Subject | None = None,
    ) -> StoredSecret:
        new = NewSecret(Secret(value), hosts)
        intern_id = None if intern is None else intern.id
        return await self.service.put(caller or self.caller, intern_id, name, new)

    async def delete(self, name: str, intern: Intern | None = None) -> None:
        intern_id = None if intern is None else intern.id
        async with self.database.writing() as write:
            await self.service.delete(write, self.caller, intern_id, name)

    async def names(
        self, intern: Intern | None = None, window: Window = ALL, caller: Subject | None = None
    ) -> list[str]:
        intern_id = None if intern is None else intern.id
        async with self.database.reading() as read:
            page = await self.service.secrets(read, caller or self.caller, intern_id, window)
        return [secret.name for secret in page.secrets]

    async def effective(self, intern: Intern, caller: Subject | None = None) -> dict[str, Resolved]:
        async with self.database.reading() as read:
            return await self.service.effective(read, caller or self.caller, intern.id)

    async def value(self, secret: StoredSecret) -> str:
        return (await self.service.open(secret)).reveal()

    async def import_unbound(self, *names: str, value: str = "old") -> Sequence[str]:
        secrets = [ImportedSecret(name, Secret(value)) for name in names]
        workspace = self.tenant.workspace
        imported, _ = await self.maintenance.import_unbound(workspace, secrets, "somebody")
        return imported

    async def audit_rows(self, chain: str | None = None) -> Sequence[AuditRow]:
        async with self.database.reading() as read:
            return await self.audit.rows(read, chain or self.tenant.account.id, 0, 1_000)

    async def audit_fault(self) -> ChainFault | None:
        verifier = ChainVerifier()
        async with self.database.reading() as read:
            head = await self.audit.head(read, self.tenant.account.id)
        rows = [exported(row) for row in await self.audit_rows()]
        return verifier.fault_in(rows) or verifier.fault_at_end(head)

    async def _leaves(self, write: Write, workspace: Workspace, who: Manager) -> None:
        await self.service.workspace_leaves(write, workspace, who)
