"""`/workspaces`: the scopes inside an account.

Source: the public gateway's workspace operations; a workspace is named by its id or its slug.
"""

import uuid
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from tollhouse.audit.changes import entry_of_change
from tollhouse.audit.types import AuditAction
from tollhouse.identity.access import Managing, ManagingOr401, OfAccount
from tollhouse.identity.endpoints.workspace_wire import (
    NewWorkspaceBody,
    WorkspaceChangeBody,
    WorkspacePreferences,
    WorkspaceReply,
)
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import Workspace
from tollhouse.kernel.wire import AccountPageQuery, Deleted, Reference, Reply, refusals
from tollhouse.storage.database import Database

Id = Annotated[Reference, Path(description="Id or slug of the workspace.")]
Confirmed = Annotated[bool, Query(description="Must be true to delete the default workspace.")]


class OneWorkspace(Reply):
    """The envelope of one workspace."""

    data: WorkspaceReply
    """The workspace."""


class WorkspacePage(Reply):
    """Part of the list of workspaces."""

    data: list[WorkspaceReply]
    """Oldest first."""
    total_count: int
    """How many there are altogether."""


class WorkspaceEndpoints:
    """The endpoints of workspaces."""

    def __init__(self, service: IdentityService, database: Database) -> None:
        """Take what they need."""
        self._service = service
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        one = "/workspaces/{id}"
        routes.get("/workspaces", tags=["Workspaces"], responses=refusals(400, 401, 404, 500))(
            self.list_workspaces
        )
        routes.post(
            "/workspaces",
            tags=["Workspaces"],
            status_code=201,
            responses=refusals(400, 401, 403, 404, 500),
        )(self.create_workspace)
        routes.get(one, tags=["Workspaces"], responses=refusals(400, 401, 403, 404, 500))(
            self.get_workspace
        )
        routes.patch(one, tags=["Workspaces"], responses=refusals(400, 401, 403, 404, 500))(
            self.change_workspace
        )
        routes.delete(one, tags=["Workspaces"], responses=refusals(400, 401, 403, 404, 500))(
            self.delete_workspace
        )

    async def list_workspaces(
        self, who: ManagingOr401, query: Annotated[AccountPageQuery, Query()]
    ) -> WorkspacePage:
        """List the workspaces of an account."""
        async with self._database.reading() as read:
            account_id = await self._service.home(read, who, query.account_id)
            page = await self._service.workspaces(read, account_id, query.window())
        return WorkspacePage(data=[_reply(each) for each in page.items], total_count=page.total)

    async def create_workspace(self, who: Managing, body: NewWorkspaceBody) -> OneWorkspace:
        """Make a workspace."""
        facts = body.facts()
        async with self._database.writing() as write:
            account_id = await self._service.home(write, who, body.account_id)
            made = await self._service.create_workspace(write, account_id, facts, who.user_id)
            entry = entry_of_change(
                AuditAction.WORKSPACE_CREATED, who.actor, made.id, new=_facts(made)
            )
            await self._service.audit.record(write, account_id, [entry])
        return OneWorkspace(data=_reply(made))

    async def get_workspace(
        self,
        who: Managing,
        id: Id,  # noqa: A002 - the parameter's published name
        account_id: OfAccount = None,
    ) -> OneWorkspace:
        """Show a workspace."""
        async with self._database.reading() as read:
            home = await self._service.home(read, who, account_id)
            return OneWorkspace(data=_reply(await self._service.workspace(read, home, id)))

    async def change_workspace(
        self,
        who: Managing,
        id: Id,  # noqa: A002 - the parameter's published name
        body: WorkspaceChangeBody,
        account_id: OfAccount = None,
    ) -> OneWorkspace:
        """Change what the body names of a workspace; the rest stays."""
        async with self._database.writing() as write:
            home = await self._service.home(write, who, account_id)
            before = await self._service.workspace(write, home, id)
            changed = await self._service.change_workspace(write, who, home, id, body.facts())
            entry = entry_of_change(
                AuditAction.WORKSPACE_CHANGED,
                who.actor,
                changed.id,
                _facts(before),
                _facts(changed),
            )
            await self._service.audit.record(write, home, [entry])
        return OneWorkspace(data=_reply(changed))

    async def delete_workspace(
        self,
        who: Managing,
        id: Id,  # noqa: A002 - the parameter's published name
        confirm_default_workspace_deletion: Confirmed = False,  # noqa: FBT002 - a query parameter
        account_id: OfAccount = None,
    ) -> Deleted:
        """Remove a workspace. It must have no API keys; the default one must be confirmed."""
        async with self._database.writing() as write:
            home = await self._service.home(write, who, account_id)
            before = await self._service.workspace(write, home, id)
            await self._service.delete_workspace(
                write, who, home, id, default_confirmed=confirm_default_workspace_deletion
            )
            entry = entry_of_change(
                AuditAction.WORKSPACE_DELETED, who.actor, before.id, _facts(before)
            )
            await self._service.audit.record(write, home, [entry])
        return Deleted()


def _facts(workspace: Workspace) -> dict[str, Any]:
    facts = asdict(workspace)
    return {"workspace_id": workspace.id, **facts.pop("preferences"), **facts}


def _reply(workspace: Workspace) -> WorkspaceReply:
    preferences = WorkspacePreferences.model_validate(workspace.preferences)
    return WorkspaceReply(
        id=workspace.id,
        default_guardrail_id=str(uuid.uuid5(uuid.UUID(workspace.id), "default guardrail")),
        name=workspace.name,
        slug=workspace.slug,
        description=workspace.description,
        intern_programme=workspace.intern_programme,
        vault_writes=workspace.vault_writes,
        created_at=workspace.created_at,
        updated_at=workspace.updated_at,
        created_by=workspace.created_by,
        **preferences.model_dump(),
    )
