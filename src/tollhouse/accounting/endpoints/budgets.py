"""`/workspaces/{id}/budgets`, those of users, and of end users: what they may use in an interval.

Source: the public gateway's workspace budgets. Those of users and of end users are ours, in the
same form; so are `spend_usd`, `remaining_usd` and `resets_at`, which its clients ignore.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tollhouse.accounting.endpoints.shared import (
    AMOUNT_TEXT,
    Credits,
    Endpoints,
    budget_facts,
    parsed_limit,
)
from tollhouse.accounting.limits import interval_of
from tollhouse.accounting.owner import Owner, end_user
from tollhouse.accounting.shared_limits import OwnerBudget
from tollhouse.accounting.types import BudgetScope, Reset
from tollhouse.identity.callers import ManagingOr401, OfAccount, UserId, WorkspaceId
from tollhouse.identity.types import Manager, Workspace
from tollhouse.kernel.wire import (
    STORABLE,
    AccountPageQuery,
    Deleted,
    Omittable,
    RequestModel,
    ResponseModel,
    SentTime,
    endpoint,
    refusals,
)
from tollhouse.storage.database import Read, Write

_INCLUDED = "include_byok_in_budgets"
LONGEST_END_USER = 512
EndUser = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_END_USER),
    STORABLE,
    Path(alias="end_user", description="Whom requests name as their `user`."),
]
IntervalName = Annotated[
    Literal["daily", "weekly", "monthly", "lifetime"],
    Path(description="How often it starts anew, at midnight UTC, weekly on Mondays; or never."),
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
    limit_usd: Credits
    """Most credits that may be used in an interval."""
    reset_interval: str | None
    """When it starts anew, at midnight UTC: daily, weekly (on Mondays), monthly; null: never."""
    spend_usd: Credits
    """What was used since it last started anew."""
    remaining_usd: Credits
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


class Whose(NamedTuple):
    """Whose budgets a path means: a user's, or a workspace's."""

    user_id: str | None = None
    workspace: str = ""
    end_user: str | None = None
    """Not the workspace's own, but those of this end user."""


async def _workspace(workspace: WorkspaceId) -> Whose:
    return Whose(workspace=workspace)


async def _user(user_id: UserId) -> Whose:
    return Whose(user_id)


async def _end_user(workspace: WorkspaceId, name: EndUser) -> Whose:
    return Whose(workspace=workspace, end_user=name)


async def _interval(interval: IntervalName) -> Reset | None:
    return interval_of(interval)


Interval = Annotated[Reset | None, Depends(_interval)]


class _Kind(NamedTuple):
    """What has budgets, and how the operations on them are named and described."""

    name: str
    noun: str
    path: str
    whose: Callable[..., Awaitable[Whose]]
    setting: str
    """What is said of setting one; of the others the same is said of every kind."""


_KINDS = (
    _Kind(
        "workspace",
        "a workspace",
        "/workspaces/{id}/budgets",
        _workspace,
        "Set what all requests of a workspace may use in an interval; in force before the answer."
        "\n\nWhat was used before counts; requests under way end as they began.",
    ),
    _Kind(
        "user",
        "a user",
        "/users/{user_id}/budgets",
        _user,
        "Set what the keys that a user made may use together in an interval; in force at once."
        "\n\nWhat interns use counts to the user whose key answers for them.",
    ),
    _Kind(
        "end_user",
        "an end user",
        "/workspaces/{id}/end-users/{end_user:path}/budgets",
        _end_user,
        "Set what requests of a workspace may use that name an end user as their `user`."
        "\n\nIt is in force before the answer. Who is named is not checked.",
    ),
)


class _Place(NamedTuple):
    """Whose budgets they are in the books."""

    account_id: str
    owner: Owner
    workspace: Workspace | None = None
    """Where it is a workspace, whose setting says whether own-provider-key use counts."""

    def included(self, budgets: Sequence[OwnerBudget]) -> bool:
        """Return whether own-provider-key use counts."""
        if self.workspace is not None:
            return self.workspace.preferences.get(_INCLUDED) is True
        return bool(budgets) and budgets[0].limit.include_byok


class BudgetEndpoints(Endpoints):
    """The endpoints of budgets."""

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router: the same four for each kind of owner, and a list."""
        super().add_to(routes)
        for kind in _KINDS:
            self._add(routes, kind)

    def _add(self, routes: APIRouter, kind: _Kind) -> None:
        name, noun, path, whose, setting = kind
        about: dict[str, Any] = {"tags": ["Budgets"], "responses": refusals(400, 401, 404, 500)}
        one = f"{path}/{{interval}}"

        @routes.get(
            path, name=f"list_{name}_budgets", description=f"List the budgets of {noun}.", **about
        )
        async def list_all(
            who: ManagingOr401,
            asked: Annotated[Whose, Depends(whose)],
            account_id: OfAccount = None,
        ) -> BudgetList:
            async with self.database.reading() as read:
                place = await self._place(read, who, asked, account_id)
                found = await self.accounting.budgets.budgets(read, place.account_id, [place.owner])
            shown = [_reply(each) for each in found]
            return BudgetList(data=shown, include_byok_in_budgets=place.included(found))

        text = f"Show the budget of {noun}'s interval."

        @routes.get(one, name=f"get_{name}_budget", description=text, **about)
        async def get(
            who: ManagingOr401,
            asked: Annotated[Whose, Depends(whose)],
            interval: Interval,
            account_id: OfAccount = None,
        ) -> OneBudget:
            async with self.database.reading() as read:
                place = await self._place(read, who, asked, account_id)
                found = await self.accounting.budgets.budget(
                    read, place.account_id, place.owner, interval
                )
            return OneBudget(data=_reply(found), include_byok_in_budgets=place.included([found]))

        @routes.put(one, name=f"set_{name}_budget", description=setting, **about)
        async def put(
            who: ManagingOr401,
            asked: Annotated[Whose, Depends(whose)],
            interval: Interval,
            body: BudgetBody,
            account_id: OfAccount = None,
        ) -> OneBudget:
            async with self.database.writing() as write:
                place = await self._place(write, who, asked, account_id)
                found = await self.accounting.budgets.set_budget(
                    write,
                    place.account_id,
                    place.owner,
                    interval,
                    body.limit_usd,
                    include_byok=await self._include(write, who, place, body),
                    actor=who.actor,
                )
            return OneBudget(data=_reply(found), include_byok_in_budgets=found.limit.include_byok)

        text = f"Remove the budget of {noun}'s interval; there need not be one."

        @routes.delete(one, name=f"delete_{name}_budget", description=text, **about)
        async def delete(
            who: ManagingOr401,
            asked: Annotated[Whose, Depends(whose)],
            interval: Interval,
            account_id: OfAccount = None,
        ) -> Deleted:
            async with self.database.writing() as write:
                place = await self._place(write, who, asked, account_id)
                await self.accounting.budgets.remove_budget(
                    write, place.account_id, place.owner, interval, who.actor
                )
            return Deleted()

    @endpoint("GET", "/workspaces/{id}/end-users/budgets", "Budgets", 400, 401, 404, 500)
    async def list_end_users_budgets(
        self,
        who: ManagingOr401,
        workspace: WorkspaceId,
        query: Annotated[AccountPageQuery, Query()],
    ) -> EndUserBudgetPage:
        """List the budgets of all end users of a workspace."""
        async with self.reading(who, query.account_id) as (read, account_id):
            found = await self.identity.workspace(read, account_id, workspace)
            page, total = await self.accounting.budgets.budgets_of_end_users(
                read, account_id, found.id, query.window()
            )
        return EndUserBudgetPage(data=[_reply(each) for each in page], total_count=total)

    async def _place(
        self, read: Read, who: Manager, asked: Whose, account_id: str | None
    ) -> _Place:
        home = await self.identity.home(read, who, account_id)
        if asked.user_id is not None:
            user = await self.identity.user(read, home, asked.user_id)
            return _Place(home, Owner(BudgetScope.MEMBER, user.id))
        workspace = await self.identity.workspace(read, home, asked.workspace)
        if asked.end_user is not None:
            return _Place(home, end_user(workspace.id, asked.end_user))
        return _Place(home, Owner(BudgetScope.WORKSPACE, workspace.id), workspace)

    async def _include(
        self, write: Write, who: Manager, place: _Place, body: BudgetBody
    ) -> bool | None:
        """Set whether own-provider-key use counts where a workspace says it; return what it is."""
        wanted, workspace = body.include_byok_in_budgets, place.workspace
        if workspace is None:
            return wanted
        before = place.included([])
        if wanted is None or wanted is before:
            return before
        facts = {_INCLUDED: wanted}
        await self.identity.change_workspace(write, who, place.account_id, workspace.id, facts)
        return wanted


def _reply(found: OwnerBudget) -> BudgetData:
    limit, budget = found
    is_person = limit.owner.scope is BudgetScope.MEMBER
    workspace, _, name = ("", "", "") if is_person else limit.owner.id.partition(":")
    return BudgetData(
        id=limit.id,
        workspace_id=workspace or None,
        user_id=limit.owner.id if is_person else None,
        end_user=name or None,
        created_at=limit.created_at,
        updated_at=limit.updated_at,
        **budget_facts(budget),
    )
