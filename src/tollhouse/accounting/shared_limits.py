"""Use cases of budgets: what a workspace, a person's keys or an end user may use together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple

from tollhouse.accounting import budget_rows as rows
from tollhouse.accounting import policy, repository
from tollhouse.accounting.limits import Budget, budget_of, check_nested, interval_name
from tollhouse.accounting.owner import Owner, OwnerLimit
from tollhouse.accounting.types import BudgetScope
from tollhouse.accounting.uses import uses_of
from tollhouse.audit.types import AuditAction, RedactedValue
from tollhouse.kernel.errors import NotFound
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tollhouse.accounting.types import Reset
    from tollhouse.audit.service import AuditService
    from tollhouse.identity.types import Manager, Workspace
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.kernel.pages import Window
    from tollhouse.storage.database import Read, Write


class OwnerBudget(NamedTuple):
    """A limit, and what is left of it."""

    limit: OwnerLimit
    budget: Budget


@dataclass(frozen=True, slots=True)
class BudgetService:
    """The limits of workspaces, people and end users."""

    clock: Clock
    ids: IdSource
    audit: AuditService

    async def budgets(
        self, read: Read, account_id: str, owners: Iterable[Owner]
    ) -> Sequence[OwnerBudget]:
        """Return the budgets of owners in the order in which they are enforced."""
        return await self._with_use(read, account_id, await repository.limits_of(read, owners))

    async def budgets_of_key(
        self, read: Read, account_id: str, key_hash: str
    ) -> Sequence[OwnerBudget]:
        """Return what requests with a key draw on beside its own limit, apart from end users'."""
        found = await repository.owners_of_keys(read, [key_hash])
        return await self.budgets(read, account_id, found.get(key_hash, ()))

    async def reserved_of(
        self, read: Read, account_id: str, key_hashes: Sequence[str], workspace_id: str | None
    ) -> Sequence[OwnerBudget]:
        """Return what a batch reserves of beside its keys' limits.

        That is what its workspace may use, and the people who made one of its keys.
        """
        people = await repository.people_of(read, key_hashes)
        owners = [Owner(BudgetScope.MEMBER, person) for person in people.values()]
        if workspace_id is not None:
            owners.append(Owner(BudgetScope.WORKSPACE, workspace_id))
        return await self.budgets(read, account_id, owners)

    async def budget(
        self, read: Read, account_id: str, owner: Owner, reset: Reset | None
    ) -> OwnerBudget:
        """Return the budget of an owner's interval, or raise `NotFound`."""
        for each in await self.budgets(read, account_id, [owner]):
            if each.limit.reset is reset:
                return each
        raise NotFound(f"There is no {interval_name(reset)} budget.")

    async def budgets_of_end_users(
        self, read: Read, account_id: str, workspace_id: str, window: Window
    ) -> tuple[Sequence[OwnerBudget], int]:
        """Return budgets of a workspace's end users by their names, and how many there are."""
        page = await repository.limits_of_end_users(read, workspace_id, window)
        return await self._with_use(read, account_id, page.items), page.total

    async def set_budget(  # noqa: PLR0913 - each is a fact of the limit
        self,
        write: Write,
        account_id: str,
        owner: Owner,
        reset: Reset | None,
        limit_nano: int,
        *,
        include_byok: bool | None,
        actor: str,
    ) -> OwnerBudget:
        """Let an owner use as much as this in an interval; in force before the answer.

        `include_byok` holds for all limits of the owner; None leaves it as it is.

        Raises:
            Invalid: It is no more than the limit of a shorter interval, or no less than that of a
                longer one.
        """
        # Nobody else changes these limits meanwhile, nor reserves.
        await repository.lock_credits(write, account_id)
        limits, now = await repository.limits_of(write, [owner]), self.clock.now()
        check_nested(limit_nano, reset, limits)
        before = next((each for each in limits if each.reset is reset), None)
        if include_byok is None:
            include_byok = bool(limits) and limits[0].include_byok
        new = OwnerLimit(owner, self.ids.uuid(), limit_nano, reset, include_byok, now, now)
        if before is not None:
            new = replace(new, id=before.id, created_at=before.created_at)
        await repository.save_limit(write, new)
        await rows.limit_changed(write, owner.scope, owner.id)
        await self._record(write, account_id, actor, before, new)
        write.notify(Topic.ACCOUNT, account_id)
        return await self.budget(write, account_id, owner, reset)

    async def remove_budget(
        self, write: Write, account_id: str, owner: Owner, reset: Reset | None, actor: str
    ) -> None:
        """Take away the limit of an owner's interval; there need not be one."""
        await repository.lock_credits(write, account_id)
        for each in await repository.limits_of(write, [owner]):
            if each.reset is reset:
                await repository.remove_limit(write, each)
                await rows.limit_changed(write, owner.scope, owner.id)
                await self._record(write, account_id, actor, each, None)
                write.notify(Topic.ACCOUNT, account_id)

    async def workspace_leaves(self, write: Write, workspace: Workspace, who: Manager) -> None:
        """Take away the limits of a workspace that is removed, and of its end users."""
        owner = Owner(BudgetScope.WORKSPACE, workspace.id)
        removed = await repository.limits_of(write, [owner])
        await repository.remove_limits_of_workspace(write, workspace.id)
        await rows.limits_gone(write, workspace.id)
        for each in removed:
            await self._record(write, workspace.account_id, who.actor, each, None)

    async def _with_use(
        self, read: Read, account_id: str, limits: Collection[OwnerLimit]
    ) -> Sequence[OwnerBudget]:
        now = self.clock.now()
        today, first = now.astimezone(UTC).date(), policy.first_day_of_windows(now)
        uses = await uses_of(read, account_id, limits, first)
        return [OwnerBudget(each, budget_of(each, uses[each.owner], today)) for each in limits]

    async def _record(
        self,
        write: Write,
        account_id: str,
        actor: str,
        before: OwnerLimit | None,
        after: OwnerLimit | None,
    ) -> None:
        action = AuditAction.BUDGET_REMOVED if after is None else AuditAction.BUDGET_SET
        [owner, *_] = [each.owner.id for each in (before, after) if each is not None]
        old = None if before is None else _facts(before)
        new = {} if after is None else _facts(after)
        whose = owner.partition(":")[0]
        await self.audit.record_change(write, account_id, action, actor, whose, old, new)


def _facts(limit: OwnerLimit) -> dict[str, Any]:
    """Return what the audit log tells of a limit: rows stay for ever, so no end user's name."""
    scope, owner = limit.owner
    facts: dict[str, Any] = {
        "scope": scope.value,
        "name": interval_name(limit.reset),
        "limit_nano": limit.limit_nano,
        "include_byok": limit.include_byok,
    }
    if scope is BudgetScope.MEMBER:
        return facts | {"user_id": owner}
    workspace, _, name = owner.partition(":")
    named = {"end_user": RedactedValue(name)} if name else {}
    return facts | {"workspace_id": workspace} | named
