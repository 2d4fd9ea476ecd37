"""What an operator asks of vaults. Ours."""

from fastapi import APIRouter

from tollhouse.identity.access import Operating
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.secret import Secret
from tollhouse.kernel.wire import refusals
from tollhouse.storage.database import Database
from tollhouse.vault import policy
from tollhouse.vault.endpoints.wire import (
    ImportBody,
    ImportedReply,
    OneImport,
    OneRotation,
    RotatedReply,
)
from tollhouse.vault.envelope import Unopenable
from tollhouse.vault.keys.base import KeysUnavailable
from tollhouse.vault.service import OPERATOR
from tollhouse.vault.upkeep import Unbound, Upkeep

_TAG = "Vault upkeep"


class VaultUpkeep:
    """The endpoints for operators."""

    def __init__(self, upkeep: Upkeep, identity: IdentityService, database: Database) -> None:
        """Take what they need."""
        self._upkeep = upkeep
        self._identity = identity
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.post("/vault-keys/rotate", tags=[_TAG], responses=refusals(400, 401, 403, 500, 503))(
            self.rotate_vault_keys
        )
        routes.post(
            "/vault-imports", tags=[_TAG], responses=refusals(400, 401, 403, 404, 413, 500, 503)
        )(self.import_secrets)

    async def rotate_vault_keys(self, who: Operating) -> OneRotation:
        """Wrap every vault's data key with a new key-encryption key. Nothing stops meanwhile."""
        try:
            done = await self._upkeep.rotate(who.key_hash or OPERATOR)
        except KeysUnavailable as error:
            message = f"The key cannot be changed now: {error.reason}. Try again."
            raise Unavailable(message) from error
        except Unopenable as error:
            message = "A vault's key does not open; no key was forgotten."
            raise Unavailable(message) from error
        return OneRotation(data=RotatedReply(kek_id=done.kek_id, vaults=done.vaults))

    async def import_secrets(self, who: Operating, body: ImportBody) -> OneImport:
        """Take in secrets that are bound to no host.

        They are listed, and replaced when their names are stored again. They reach a host only
        where `vault.release_unbound` says so.
        """
        secrets = [
            Unbound(
                policy.check_name(each.name, f"secrets.{at}.name"),
                Secret(policy.check_value(each.value, f"secrets.{at}.value")),
            )
            for at, each in enumerate(body.secrets)
        ]
        async with self._database.reading() as read:
            home = await self._identity.home(read, who, body.account_id)
            workspace = await self._identity.workspace(read, home, body.workspace_id)
        actor = who.key_hash or OPERATOR
        done = await self._upkeep.import_unbound(workspace, secrets, actor)
        return OneImport(data=ImportedReply(imported=list(done.imported), kept=list(done.kept)))
