"""`/workspaces/{id}/budgets`, those of users, and of end users: what they may use in an interval.

Source: the public gateway's workspace budgets. Those of users and of end users are ours, in the
same form; so are `spend_usd`, `remaining_usd` and `resets_at`, which its clients ignore.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tollhouse.accounting.endpoints.amounts import AMOUNT_TEXT, ExactNumbers, parsed_limit
from tollhouse.accounting.limits import interval_of
from tollhouse.accounting.owner import Owner, end_user
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.shared_limits import OwnerBudget
from tollhouse.accounting.types import BudgetScope
from tollhouse.identity.callers import ManagingOr401, OfAccount
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import Manager, Workspace
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import (
    STORABLE,
    AccountPageQuery,
    Deleted,
    Omittable,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    refusals,
)
from tollhouse.storage.database import Database, Read, Write

LONGEST_END_USER = 512
Interval = Annotated[
    Literal["daily", "weekly", "monthly", "lifetime"],
    Path(description="How often it starts anew, at midnight UTC, weekly on Mondays; or never."),
]
WorkspaceId = Annotated[Reference, Path(alias="id", description="Id or slug of the workspace.")]
UserId = Annotated[Reference, Path(description="Id of the user.")]
_INCLUDED = "include_byok_in_budgets"
EndUser = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_END_USER),
    STORABLE,
    Path(alias="end_user", description="Whom requests name as their `user`."),
]


def _positive(value: object) -> int:
    nano = parsed_limit(value)
    if not nano:
        raise PydanticCustomError("limit", "must be greater than 0")
    return nano


LimitUsd = Annotated[
    int,
    BeforeValidator(_positive),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, AMOUNT_TEXT], "examples": [25]}
    ),
]


class BudgetBody(RequestModel):
    """What may be used in an interval."""

    limit_usd: LimitUsd
    """Most credits, exact to nine decimals: more than those of shorter intervals, less than those
    of longer ones."""
    include_byok_in_budgets: Omittable[bool] = None
    """Whether own-provider-key use counts, towards the budgets of every interval; as before unless
    given."""


class BudgetData(ResponseModel):
    """A budget: what all requests of a workspace, a user's keys or an end user may use together."""

    id: str
    """UUID."""
    workspace_id: str | None
    """UUID of the workspace; null for a user's."""
    user_id: str | None
    """UUID of the user; null for all others."""
    end_user: str | None
    """The end user of the workspace, whom requests name as their `user`; null for all others."""
    limit_usd: float
    """Most credits that may be used in an interval."""
    reset_interval: str | None
    """When it starts anew, at midnight UTC: daily, weekly (on Mondays), monthly; null: never."""
    spend_usd: float
    """What was used since it last started anew."""
    remaining_usd: float
    """What is left; negative where more was used."""
    resets_at: SentTime | None
    """When it starts anew next; null: never."""
    include_byok: bool
    """Whether own-provider-key use counts."""
    created_at: SentTime
    """When it was first set."""
    updated_at: SentTime
    """When it was last set."""


class OneBudget(ResponseModel):
    """The envelope of a budget."""

    data: BudgetData
    """The budget."""
    include_byok_in_budgets: bool
    """Whether own-provider-key use counts, in every interval."""


class BudgetList(ResponseModel):
    """The budgets of a workspace, a user or an end user."""

    data: Sequence[BudgetData]
    """Of each interval that has one, the shortest first."""
    include_byok_in_budgets: bool
    """Whether own-provider-key use counts, in every interval."""


class EndUserBudgetPage(ResponseModel):
    """Part of the list of the budgets of a workspace's end users."""

    data: Sequence[BudgetData]
    """By end user."""
    total_count: int
    """How many there are altogether."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose budgets are meant."""

    account_id: str
    owner: Owner
    workspace: Workspace | None = None
    """Where it is a workspace whose setting says whether own-provider-key use counts."""

    def included(self, budgets: Sequence[OwnerBudget]) -> bool:
        """Return whether own-provider-key use counts."""
        if self.workspace is not None:
            return self.workspace.preferences.get(_INCLUDED) is True
        return bool(budgets) and budgets[0].limit.include_byok


@dataclass(frozen=True, slots=True)
class BudgetEndpoints:
    """The endpoints of budgets."""

    accounting: AccountingService
    identity: IdentityService
    database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        refused = refusals(400, 401, 404, 500)
        end_users = "/workspaces/{id}/end-users"
        routes.get(f"{end_users}/budgets", tags=["Budgets"], responses=refused)(
            self.list_end_users_budgets
        )
        for path, list_all, *of_interval in (
            (
                "/workspaces/{id}/budgets",
                *(self.list_workspace_budgets, self.get_workspace_budget),
                *(self.set_workspace_budget, self.delete_workspace_budget),
            ),
            (
                "/users/{user_id}/budgets",
                *(self.list_user_budgets, self.get_user_budget),
                *(self.set_user_budget, self.delete_user_budget),
            ),
            (
                f"{end_users}/{{end_user:path}}/budgets",
                *(self.list_end_user_budgets, self.get_end_user_budget),
                *(self.set_end_user_budget, self.delete_end_user_budget),
            ),
        ):
            routes.get(path, tags=["Budgets"], responses=refused)(list_all)
            for method, serve in zip(("GET", "PUT", "DELETE"), of_interval, strict=True):
                routes.add_api_route(
                    f"{path}/{{interval}}",
                    serve,
                    methods=[method],
                    tags=["Budgets"],
                    responses=refused,
                    route_class_override=ExactNumbers,
                )

    # Of workspaces

    async def list_workspace_budgets(
        self, who: ManagingOr401, workspace: WorkspaceId, account_id: OfAccount = None
    ) -> BudgetList:
        """List the budgets of a workspace."""
        async with self.database.reading() as read:
            return await self._list(read, await self._workspace(read, who, workspace, account_id))

    async def get_workspace_budget(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        interval: Interval,
        account_id: OfAccount = None,
    ) -> OneBudget:
        """Show the budget of a workspace's interval."""
        async with self.database.reading() as read:
            place = await self._workspace(read, who, workspace, account_id)
            return await self._get(read, place, interval)

    async def set_workspace_budget(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        interval: Interval,
        body: BudgetBody,
        account_id: OfAccount = None,
    ) -> OneBudget:
        """Set what all requests of a workspace may use in an interval; in force before the answer.

        What was used before counts; requests under way end as they began.
        """
        async with self.database.writing() as write:
            place = await self._workspace(write, who, workspace, account_id)
            return await self._set(write, who, place, interval, body)

    async def delete_workspace_budget(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        interval: Interval,
        account_id: OfAccount = None,
    ) -> Deleted:
        """Remove the budget of a workspace's interval; there need not be one."""
        async with self.database.writing() as write:
            place = await self._workspace(write, who, workspace, account_id)
            return await self._remove(write, who, place, interval)

    # Of users

    async def list_user_budgets(
        self, who: ManagingOr401, user_id: UserId, account_id: OfAccount = None
    ) -> BudgetList:
        """List the budgets of a user."""
        async with self.database.reading() as read:
            return await self._list(read, await self._user(read, who, user_id, account_id))

    async def get_user_budget(
        self,
        who: ManagingOr401,
        user_id: UserId,
        interval: Interval,
        account_id: OfAccount = None,
    ) -> OneBudget:
        """Show the budget of a user's interval."""
        async with self.database.reading() as read:
            place = await self._user(read, who, user_id, account_id)
            return await self._get(read, place, interval)

    async def set_user_budget(
        self,
        who: ManagingOr401,
        user_id: UserId,
        interval: Interval,
        body: BudgetBody,
        account_id: OfAccount = None,
    ) -> OneBudget:
        """Set what the keys that a user made may use together in an interval; in force at once.

        What interns use counts to the user whose key answers for them.
        """
        async with self.database.writing() as write:
            place = await self._user(write, who, user_id, account_id)
            return await self._set(write, who, place, interval, body)

    async def delete_user_budget(
        self,
        who: ManagingOr401,
        user_id: UserId,
        interval: Interval,
        account_id: OfAccount = None,
    ) -> Deleted:
        """Remove the budget of a user's interval; there need not be one."""
        async with self.database.writing() as write:
            place = await self._user(write, who, user_id, account_id)
            return await self._remove(write, who, place, interval)

    # Of end users

    async def list_end_users_budgets(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        query: Annotated[AccountPageQuery, Query()],
    ) -> EndUserBudgetPage:
        """List the budgets of all end users of a workspace."""
        async with self.database.reading() as read:
            place = await self._workspace(read, who, workspace, query.account_id)
            found, total = await self.accounting.budgets.budgets_of_end_users(
                read, place.account_id, place.owner.id, query.window()
            )
        return EndUserBudgetPage(data=[_reply(each) for each in found], total_count=total)

    async def list_end_user_budgets(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        name: EndUser,
        account_id: OfAccount = None,
    ) -> BudgetList:
        """List the budgets of an end user."""
        async with self.database.reading() as read:
            place = await self._end_user(read, who, workspace, name, account_id)
            return await self._list(read, place)

    async def get_end_user_budget(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        name: EndUser,
        interval: Interval,
        account_id: OfAccount = None,
    ) -> OneBudget:
        """Show the budget of an end user's interval."""
        async with self.database.reading() as read:
            place = await self._end_user(read, who, workspace, name, account_id)
            return await self._get(read, place, interval)

    async def set_end_user_budget(  # noqa: PLR0913, PLR0917 - each is a part of the request
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        name: EndUser,
        interval: Interval,
        body: BudgetBody,
        account_id: OfAccount = None,
    ) -> OneBudget:
        """Set what requests of a workspace may use that name an end user as their `user`.

        It is in force before the answer. Who is named is not checked.
        """
        async with self.database.writing() as write:
            place = await self._end_user(write, who, workspace, name, account_id)
            return await self._set(write, who, place, interval, body)

    async def delete_end_user_budget(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        name: EndUser,
        interval: Interval,
        account_id: OfAccount = None,
    ) -> Deleted:
        """Remove the budget of an end user's interval; there need not be one."""
        async with self.database.writing() as write:
            place = await self._end_user(write, who, workspace, name, account_id)
            return await self._remove(write, who, place, interval)

    # Of whomever

    async def _workspace(
        self, read: Read, who: Manager, reference: str, account_id: str | None
    ) -> _Place:
        home = await self.identity.home(read, who, account_id)
        found = await self.identity.workspace(read, home, reference)
        return _Place(home, Owner(BudgetScope.WORKSPACE, found.id), found)

    async def _user(self, read: Read, who: Manager, user_id: str, account_id: str | None) -> _Place:
        home = await self.identity.home(read, who, account_id)
        found = await self.identity.user(read, home, user_id)
        return _Place(home, Owner(BudgetScope.MEMBER, found.id))

    async def _end_user(
        self, read: Read, who: Manager, reference: str, name: str, account_id: str | None
    ) -> _Place:
        place = await self._workspace(read, who, reference, account_id)
        return _Place(place.account_id, end_user(place.owner.id, name))

    async def _list(self, read: Read, place: _Place) -> BudgetList:
        found = await self.accounting.budgets.budgets(read, place.account_id, [place.owner])
        return BudgetList(
            data=[_reply(each) for each in found], include_byok_in_budgets=place.included(found)
        )

    async def _get(self, read: Read, place: _Place, interval: str) -> OneBudget:
        found = await self.accounting.budgets.budget(
            read, place.account_id, place.owner, interval_of(interval)
        )
        return OneBudget(data=_reply(found), include_byok_in_budgets=place.included([found]))

    async def _set(
        self, write: Write, who: Manager, place: _Place, interval: str, body: BudgetBody
    ) -> OneBudget:
        included, workspace = body.include_byok_in_budgets, place.workspace
        if workspace is not None:
            before = place.included([])
            included = before if included is None else included
            if included is not before:
                facts = {_INCLUDED: included}
                await self.identity.change_workspace(
                    write, who, place.account_id, workspace.id, facts
                )
        found = await self.accounting.budgets.set_budget(
            write,
            place.account_id,
            place.owner,
            interval_of(interval),
            body.limit_usd,
            include_byok=included,
            actor=who.actor,
        )
        return OneBudget(data=_reply(found), include_byok_in_budgets=found.limit.include_byok)

    async def _remove(self, write: Write, who: Manager, place: _Place, interval: str) -> Deleted:
        await self.accounting.budgets.remove_budget(
            write, place.account_id, place.owner, interval_of(interval), who.actor
        )
        return Deleted()


def _reply(found: OwnerBudget) -> BudgetData:
    limit, budget = found
    is_person = limit.owner.scope is BudgetScope.MEMBER
    workspace, _, name = ("", "", "") if is_person else limit.owner.id.partition(":")
    return BudgetData(
        id=limit.id,
        workspace_id=workspace or None,
        user_id=limit.owner.id if is_person else None,
        end_user=name or None,
        limit_usd=nano_to_float(limit.limit_nano),
        reset_interval=None if limit.reset is None else limit.reset.value,
        spend_usd=nano_to_float(budget.spend_nano),
        remaining_usd=nano_to_float(budget.remaining_nano),
        resets_at=budget.resets_at,
        include_byok=limit.include_byok,
        created_at=limit.created_at,
        updated_at=limit.updated_at,
    )
