"""`/users`: the people of an account, who create keys and interns. Ours."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from tollhouse.audit.changes import RedactedValue, entry_of_change
from tollhouse.audit.types import AuditAction
from tollhouse.identity.access import Managing, OfAccount
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import User
from tollhouse.kernel.wire import (
    STORABLE,
    AccountPageQuery,
    Body,
    Name,
    Omittable,
    Reference,
    Reply,
    SentTime,
    refusals,
)
from tollhouse.storage.database import Database

Email = Annotated[str, Field(max_length=320, pattern=r"^[^@\s]+@[^@\s]+$"), STORABLE]
UserId = Annotated[Reference, Path(description="Id of the user.")]


class NewUserBody(Body):
    """A user to make."""

    name: Name
    """The person's name."""
    email: Email | None = None
    """Where to reach the person."""
    account_id: Reference | None = None
    """For an operator: the account that is meant, if not the key's own."""


class UserChangeBody(Body):
    """What to change of a user; what is left out stays."""

    name: Omittable[Name] = None
    """The person's name."""
    email: Email | None = None
    """Where to reach the person; null clears it."""


class UserReply(Reply):
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


class OneUser(Reply):
    """The envelope of one user."""

    data: UserReply
    """The user."""


class UserPage(Reply):
    """Part of the list of users."""

    data: list[UserReply]
    """Oldest first."""
    total_count: int
    """How many there are altogether."""


class UserEndpoints:
    """The endpoints of users."""

    def __init__(self, service: IdentityService, database: Database) -> None:
        """Take what they need."""
        self._service = service
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.get("/users", tags=["Users"], responses=refusals(400, 401, 403, 404, 500))(
            self.list_users
        )
        routes.post(
            "/users", tags=["Users"], status_code=201, responses=refusals(400, 401, 403, 404, 500)
        )(self.create_user)
        routes.get("/users/{user_id}", tags=["Users"], responses=refusals(400, 401, 403, 404, 500))(
            self.get_user
        )
        routes.patch(
            "/users/{user_id}", tags=["Users"], responses=refusals(400, 401, 403, 404, 500)
        )(self.change_user)

    async def list_users(
        self, who: Managing, query: Annotated[AccountPageQuery, Query()]
    ) -> UserPage:
        """List the users of an account."""
        async with self._database.reading() as read:
            account_id = await self._service.home(read, who, query.account_id)
            page = await self._service.users(read, account_id, query.window())
        return UserPage(data=[_reply(each) for each in page.items], total_count=page.total)

    async def create_user(self, who: Managing, body: NewUserBody) -> OneUser:
        """Make a user of an account."""
        async with self._database.writing() as write:
            account_id = await self._service.home(write, who, body.account_id)
            user = await self._service.create_user(write, account_id, body.name, body.email)
            entry = entry_of_change(AuditAction.USER_CREATED, who.actor, user.id, new=_facts(user))
            await self._service.audit.record(write, account_id, [entry])
        return OneUser(data=_reply(user))

    async def get_user(
        self, who: Managing, user_id: UserId, account_id: OfAccount = None
    ) -> OneUser:
        """Show a user."""
        async with self._database.reading() as read:
            home = await self._service.home(read, who, account_id)
            return OneUser(data=_reply(await self._service.user(read, home, user_id)))

    async def change_user(
        self, who: Managing, user_id: UserId, body: UserChangeBody, account_id: OfAccount = None
    ) -> OneUser:
        """Change a user's name or email."""
        async with self._database.writing() as write:
            home = await self._service.home(write, who, account_id)
            facts = body.model_dump(exclude_unset=True)
            before = await self._service.user(write, home, user_id)
            changed = await self._service.change_user(write, home, user_id, facts)
            entry = entry_of_change(
                AuditAction.USER_CHANGED, who.actor, user_id, _facts(before), _facts(changed)
            )
            await self._service.audit.record(write, home, [entry])
        return OneUser(data=_reply(changed))


def _facts(user: User) -> dict[str, Any]:
    """Return what the record tells of a user; its rows stay for ever, so no name and address."""
    email = None if user.email is None else RedactedValue(user.email)
    return {**asdict(user), "name": RedactedValue(user.name), "email": email}


def _reply(user: User) -> UserReply:
    return UserReply(
        id=user.id,
        account_id=user.account_id,
        name=user.name,
        email=user.email,
        created_at=user.created_at,
        updated_at=user.updated_at,
    )
