"""`/accounts`: who pays; `/users`: the people of an account, who create keys and interns. Ours."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field

from tollhouse.audit.types import AuditAction, RedactedValue
from tollhouse.identity.callers import Managing, OfAccount, Operating, UserId
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import AccountType, User
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.wire import (
    STORABLE,
    AccountPageQuery,
    Name,
    Omittable,
    PageQuery,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    add_endpoints,
    endpoint,
)
from tollhouse.storage.database import Database

Type = Literal["prepaid", "enterprise", "subscription", "invoice"]
AccountId = Annotated[Reference, Path(description="Id of the account.")]


@dataclass(frozen=True, slots=True)
class IdentityEndpoints:
    """Endpoints of one kind of thing."""

    service: IdentityService
    database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        add_endpoints(routes, self)


class NewAccountBody(RequestModel):
    """An account to make."""

    name: Name
    """What people call it."""
    type: Type = "prepaid"
    """How it pays: prepaid and subscription with credits that it has, enterprise and invoice
    afterwards."""
    free_limits_exempt: bool = False
    """Whether its requests to free models are not limited."""


class AccountChangeBody(RequestModel):
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


class AccountReply(ResponseModel):
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


class OneAccount(ResponseModel):
    """The envelope of one account."""

    data: AccountReply
    """The account."""


class CreatedAccount(ResponseModel):
    """A new account and the workspace that comes with it."""

    data: AccountReply
    """The account."""
    workspace_id: str
    """UUID of its default workspace."""


class AccountPage(ResponseModel):
    """Part of the list of accounts."""

    data: list[AccountReply]
    """Oldest first."""
    total_count: int
    """How many there are altogether."""


class AccountEndpoints(IdentityEndpoints):
    """The endpoints of accounts."""

    @endpoint("GET", "/accounts", "Accounts", 400, 401, 403, 500)
    async def list_accounts(
        self, who: Managing, query: Annotated[PageQuery, Query()]
    ) -> AccountPage:
        """List accounts: all of them for an operator, otherwise the key's own."""
        async with self.database.reading() as read:
            page = await self.service.accounts(read, who, query.window())
        return AccountPage.model_validate({"data": page.items, "total_count": page.total})

    @endpoint("POST", "/accounts", "Accounts", 400, 401, 403, 500)
    async def create_account(self, who: Operating, body: NewAccountBody) -> CreatedAccount:
        """Make an account with its default workspace. Needs an operator's management key."""
        async with self.database.writing() as write:
            kind, exempt = AccountType(body.type), body.free_limits_exempt
            account, workspace = await self.service.create_account(
                write, body.name, kind, free_limits_exempt=exempt
            )
            account_id, action = account.id, AuditAction.ACCOUNT_CREATED
            await self.service.audit.record_change(
                write, account_id, action, who.actor, account_id, new=asdict(account)
            )
        return CreatedAccount.model_validate({"data": account, "workspace_id": workspace.id})

    @endpoint("GET", "/accounts/{account_id}", "Accounts", 401, 403, 404, 500)
    async def get_account(self, who: Managing, account_id: AccountId) -> OneAccount:
        """Show an account."""
        async with self.database.reading() as read:
            account = await self.service.account(read, who, account_id)
        return OneAccount.model_validate({"data": account})

    @endpoint("PATCH", "/accounts/{account_id}", "Accounts", 400, 401, 403, 404, 500)
    async def change_account(
        self, who: Managing, account_id: AccountId, body: AccountChangeBody
    ) -> OneAccount:
        """Change what the body names of an account; how it pays only as an operator."""
        if not body.model_fields_set:
            raise Invalid("No update fields provided.")
        async with self.database.writing() as write:
            before = await self.service.account(write, who, account_id)
            changed = await self.service.change_account(
                write,
                who,
                account_id,
                name=body.name,
                account_type=None if body.type is None else AccountType(body.type),
                free_limits_exempt=body.free_limits_exempt,
                intern_programme=body.intern_programme,
                vault_writes=body.vault_writes,
            )
            action, old, new = AuditAction.ACCOUNT_CHANGED, asdict(before), asdict(changed)
            await self.service.audit.record_change(
                write, account_id, action, who.actor, account_id, old, new
            )
        return OneAccount.model_validate({"data": changed})


Email = Annotated[str, Field(max_length=320, pattern=r"^[^@\s]+@[^@\s]+$"), STORABLE]


class NewUserBody(RequestModel):
    """A user to make."""

    name: Name
    """The person's name."""
    email: Email | None = None
    """Where to reach the person."""
    account_id: Reference | None = None
    """For an operator: the account that is meant, if not the key's own."""


class UserChangeBody(RequestModel):
    """What to change of a user; what is left out stays."""

    name: Omittable[Name] = None
    """The person's name."""
    email: Email | None = None
    """Where to reach the person; null clears it."""


class UserReply(ResponseModel):
    """A user."""

    id: str
    """UUID."""
    account_id: str
    """UUID of the account."""
    name: str
    """The person's name."""
    email: str | None
    """Where to reach the person; null if not known."""
    created_at: SentTime
    """When it was made."""
    updated_at: SentTime | None
    """When it was last changed; null if never."""


class OneUser(ResponseModel):
    """The envelope of one user."""

    data: UserReply
    """The user."""


class UserPage(ResponseModel):
    """Part of the list of users."""

    data: list[UserReply]
    """Oldest first."""
    total_count: int
    """How many there are altogether."""


class UserEndpoints(IdentityEndpoints):
    """The endpoints of users."""

    @endpoint("GET", "/users", "Users", 400, 401, 403, 404, 500)
    async def list_users(
        self, who: Managing, query: Annotated[AccountPageQuery, Query()]
    ) -> UserPage:
        """List the users of an account."""
        async with self.database.reading() as read:
            account_id = await self.service.home(read, who, query.account_id)
            page = await self.service.users(read, account_id, query.window())
        return UserPage.model_validate({"data": page.items, "total_count": page.total})

    @endpoint("POST", "/users", "Users", 400, 401, 403, 404, 500)
    async def create_user(self, who: Managing, body: NewUserBody) -> OneUser:
        """Make a user of an account."""
        async with self.database.writing() as write:
            account_id = await self.service.home(write, who, body.account_id)
            user = await self.service.create_user(write, account_id, body.name, body.email)
            await self.service.audit.record_change(
                write, account_id, AuditAction.USER_CREATED, who.actor, user.id, new=_recorded(user)
            )
        return OneUser.model_validate({"data": user})

    @endpoint("GET", "/users/{user_id}", "Users", 400, 401, 403, 404, 500)
    async def get_user(
        self, who: Managing, user_id: UserId, account_id: OfAccount = None
    ) -> OneUser:
        """Show a user."""
        async with self.database.reading() as read:
            home = await self.service.home(read, who, account_id)
            user = await self.service.user(read, home, user_id)
        return OneUser.model_validate({"data": user})

    @endpoint("PATCH", "/users/{user_id}", "Users", 400, 401, 403, 404, 500)
    async def change_user(
        self, who: Managing, user_id: UserId, body: UserChangeBody, account_id: OfAccount = None
    ) -> OneUser:
        """Change a user's name or email."""
        async with self.database.writing() as write:
            home = await self.service.home(write, who, account_id)
            facts = body.model_dump(exclude_unset=True)
            before = await self.service.user(write, home, user_id)
            changed = await self.service.change_user(write, home, user_id, facts)
            action, old, new = AuditAction.USER_CHANGED, _recorded(before), _recorded(changed)
            await self.service.audit.record_change(
                write, home, action, who.actor, user_id, old, new
            )
        return OneUser.model_validate({"data": changed})


def _recorded(user: User) -> dict[str, Any]:
    """Return what the audit log tells of a user: its rows stay for ever, so no name or address."""
    email = None if user.email is None else RedactedValue(user.email)
    return {**asdict(user), "name": RedactedValue(user.name), "email": email}
