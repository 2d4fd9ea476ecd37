"""`/accounts`: who pays. Ours, for the operator of an installation."""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict

from tollhouse.audit.changes import entry_of_change
from tollhouse.audit.types import AuditAction
from tollhouse.identity.access import Managing, Operating
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import Account, AccountType
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.wire import (
    Body,
    Name,
    Omittable,
    PageQuery,
    Reference,
    Reply,
    SentTime,
    refusals,
)
from tollhouse.storage.database import Database

Type = Literal["prepaid", "enterprise", "subscription", "invoice"]
AccountId = Annotated[Reference, Path(description="Id of the account.")]


class NewAccountBody(Body):
    """An account to make."""

    name: Name
    """What people call it."""
    type: Type = "prepaid"
    """How it pays: prepaid and subscription with credits that it has, enterprise and invoice
    afterwards."""
    free_limits_exempt: bool = False
    """Whether its requests to free models are not limited."""


class AccountChangeBody(Body):
    """What to change of an account, at least one thing; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    name: Omittable[Name] = None
    """What people call it."""
    type: Omittable[Type] = None
    """How it pays: prepaid and subscription with credits that it has, enterprise and invoice
    afterwards. For an operator alone."""
    free_limits_exempt: Omittable[bool] = None
    """Whether its requests to free models are not limited. For an operator alone."""
    intern_programme: Omittable[bool] = None
    """Whether its workspaces may have interns and vaults. For an operator alone."""
    vault_writes: Omittable[bool] = None
    """Whether the secrets of its workspaces may be changed. For an operator alone."""


class AccountReply(Reply):
    """An account."""

    id: str
    """UUID."""
    name: str
    """What people call it."""
    type: str
    """How it pays: prepaid, subscription, enterprise or invoice."""
    free_limits_exempt: bool
    """Whether its requests to free models are not limited."""
    intern_programme: bool
    """Whether its workspaces may have interns and vaults."""
    vault_writes: bool
    """Whether the secrets of its workspaces may be changed."""
    created_at: SentTime
    """When it was made."""
    updated_at: SentTime | None
    """When it was last changed; null if never."""


class OneAccount(Reply):
    """The envelope of one account."""

    data: AccountReply
    """The account."""


class CreatedAccount(Reply):
    """A new account and the workspace that comes with it."""

    data: AccountReply
    """The account."""
    workspace_id: str
    """UUID of its default workspace."""


class AccountPage(Reply):
    """Part of the list of accounts."""

    data: list[AccountReply]
    """Oldest first."""
    total_count: int
    """How many there are altogether."""


class AccountEndpoints:
    """The endpoints of accounts."""

    def __init__(self, service: IdentityService, database: Database) -> None:
        """Take what they need."""
        self._service = service
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.get("/accounts", tags=["Accounts"], responses=refusals(400, 401, 403, 500))(
            self.list_accounts
        )
        routes.post(
            "/accounts", tags=["Accounts"], status_code=201, responses=refusals(400, 401, 403, 500)
        )(self.create_account)
        routes.get(
            "/accounts/{account_id}", tags=["Accounts"], responses=refusals(401, 403, 404, 500)
        )(self.get_account)
        routes.patch(
            "/accounts/{account_id}", tags=["Accounts"], responses=refusals(400, 401, 403, 404, 500)
        )(self.change_account)

    async def list_accounts(
        self, who: Managing, query: Annotated[PageQuery, Query()]
    ) -> AccountPage:
        """List accounts: all of them for an operator, otherwise the key's own."""
        async with self._database.reading() as read:
            page = await self._service.accounts(read, who, query.window())
        return AccountPage(data=[_reply(each) for each in page.items], total_count=page.total)

    async def create_account(self, who: Operating, body: NewAccountBody) -> CreatedAccount:
        """Make an account with its default workspace. Needs an operator's management key."""
        async with self._database.writing() as write:
            account, workspace = await self._service.create_account(
                write,
                body.name,
                AccountType(body.type),
                free_limits_exempt=body.free_limits_exempt,
            )
            entry = entry_of_change(
                AuditAction.ACCOUNT_CREATED, who.actor, account.id, new=asdict(account)
            )
            await self._service.audit.record(write, account.id, [entry])
        return CreatedAccount(data=_reply(account), workspace_id=workspace.id)

    async def get_account(self, who: Managing, account_id: AccountId) -> OneAccount:
        """Show an account."""
        async with self._database.reading() as read:
            return OneAccount(data=_reply(await self._service.account(read, who, account_id)))

    async def change_account(
        self, who: Managing, account_id: AccountId, body: AccountChangeBody
    ) -> OneAccount:
        """Change what the body names of an account; how it pays only as an operator."""
        if not body.model_fields_set:
            message = "No update fields provided."
            raise Invalid(message)
        async with self._database.writing() as write:
            before = await self._service.account(write, who, account_id)
            changed = await self._service.change_account(
                write,
                who,
                account_id,
                name=body.name,
                account_type=None if body.type is None else AccountType(body.type),
                free_limits_exempt=body.free_limits_exempt,
                intern_programme=body.intern_programme,
                vault_writes=body.vault_writes,
            )
            entry = entry_of_change(
                AuditAction.ACCOUNT_CHANGED, who.actor, account_id, asdict(before), asdict(changed)
            )
            await self._service.audit.record(write, account_id, [entry])
        return OneAccount(data=_reply(changed))


def _reply(account: Account) -> AccountReply:
    return AccountReply(
        id=account.id,
        name=account.name,
        type=account.type.value,
        free_limits_exempt=account.free_limits_exempt,
        intern_programme=account.intern_programme,
        vault_writes=account.vault_writes,
        created_at=account.created_at,
        updated_at=account.updated_at,
    )
