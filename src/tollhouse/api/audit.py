"""`/audit`: the record of what was done, and by whom. Ours.

The rows come as they were hashed, so that whoever reads them can verify the chain: `tollhouse audit
verify` does.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from tollhouse.audit.chain import exported
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import INSTALLATION
from tollhouse.identity.callers import Managing
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.errors import Forbidden
from tollhouse.kernel.wire import OTHER_ACCOUNT, Reference, ResponseModel, refusals
from tollhouse.storage.database import Database


class AuditQuery(BaseModel):
    """Which part of which chain is wanted."""

    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)
    installation: bool = Field(
        default=False, description="For an operator: what concerns no single account."
    )
    after: int = Field(
        default=0, ge=0, le=2**53, description="Only rows behind the one of this number."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="How many to return at most.")


class AuditChange(ResponseModel):
    """A field that was changed. Money is in nano-credits."""

    old: Any
    """Its value before; null for none."""
    new: Any
    """Its value after."""


class AuditRowReply(ResponseModel):
    """One thing that was done. Everything but `hash` is what the hash covers."""

    # A field with a default may be left out here.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    chain: str
    """Whose record it is: an account's id, or `installation`."""
    seq: int
    """Counted from 1, without a gap."""
    at: str
    """When: ISO 8601 in UTC, with milliseconds."""
    action: str
    """What was done: the kind of object and what became of it, such as `secret_written`."""
    actor: str
    """Hash of the key with which it was asked for, or `operator`."""
    workspace_id: str | None
    """UUID of the workspace in which it was done; null if it concerns the whole account."""
    intern_id: str | None
    """For which intern, or by which."""
    vault_id: str | None
    """UUID of the vault that holds the secret; null in rows about other things."""
    name: str | None
    """Of the secret, account, workspace, user or key."""
    version: int | None
    """Of the secret, after it was done."""
    hosts: list[str] | None
    """Those that it is bound to, or the one that it was asked for."""
    verdict: str
    """`done`, or why it was refused."""
    object_id: str | None = None
    """The account, workspace, user, key (its hash) or posting; only in rows about one."""
    changes: dict[str, AuditChange] | None = None
    """What was changed, by the field's name; only in rows about a change."""
    hash: str
    """SHA-256 over this row and the hash before it."""


class AuditHead(ResponseModel):
    """The end of a chain. Keep one elsewhere, and verify against it later."""

    seq: int
    """Number of the last row; 0 for none."""
    hash: str
    """The hash of that row."""


class AuditPage(ResponseModel):
    """Part of a chain."""

    data: list[AuditRowReply]
    """In their order."""
    has_more: bool
    """Whether there are further ones."""
    head: AuditHead
    """Where the chain ends."""


def audit_router(service: AuditService, identity: IdentityService, database: Database) -> APIRouter:
    """Return the route of the record."""
    routes = APIRouter()

    @routes.get(
        "/audit",
        tags=["Audit"],
        responses=refusals(400, 401, 403, 404, 500),
        response_model_exclude_unset=True,  # a row has the fields that its hash covers, no others
    )
    async def list_audit_rows(who: Managing, query: Annotated[AuditQuery, Query()]) -> AuditPage:
        """List what was done with secrets, keys, credits, policies and people, oldest first."""
        if query.installation and not who.operator:
            raise Forbidden("Only an operator sees what concerns no single account.")
        async with database.reading() as read:
            chain = INSTALLATION
            if not query.installation:
                chain = await identity.home(read, who, query.account_id)
            rows = await service.rows(read, chain, query.after, query.limit)
            head = await service.head(read, chain)
        last = rows[-1].seq if rows else query.after
        return AuditPage(
            data=[AuditRowReply.model_validate(exported(row)) for row in rows],
            has_more=len(rows) == query.limit and last < head.seq,
            head=AuditHead(seq=head.seq, hash=head.hash),
        )

    return routes
