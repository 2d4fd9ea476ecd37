"""`/ledger/holders`: the processes that spend budgets together, and what to do with a lost one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path

from tollhouse.accounting import budgets
from tollhouse.accounting.service import AccountingService
from tollhouse.identity.callers import Operating
from tollhouse.kernel.errors import NotFound
from tollhouse.kernel.money import format_credits
from tollhouse.kernel.wire import Reference, RequestModel, ResponseModel, refusals
from tollhouse.storage.database import Database

HolderId = Annotated[Reference, Path(alias="id", description="Id of the holder.")]


class HolderData(ResponseModel):
    """A process that spends budgets which others spend, too."""

    id: str
    """UUID."""
    machine: str
    """Name of its machine."""
    live: bool
    """False once it has ended, or was written off."""
    started_at: datetime
    """When it registered."""
    granted: str
    """What it has of balances, in credits, for what runs and what may come."""
    budgets: int
    """Of how many budgets it has something."""


class HoldersReply(ResponseModel):
    """Processes that spend budgets together."""

    data: list[HolderData]
    """Those that run, and those that have something of a budget; the latest first."""


class WriteOffBody(RequestModel):
    """What becomes of what a process has."""

    return_rights: bool = False
    """Whether it may be spent by others at once. If the process has spent some of it, a charge
    that comes later lets a balance or a limit end lower than it should."""


class WriteOffReply(ResponseModel):
    """A process that was written off."""

    data: HolderData
    """It, as it is now."""


@dataclass(frozen=True, slots=True)
class HolderEndpoints:
    """The endpoints of the processes that spend together."""

    accounting: AccountingService
    database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        refused = refusals(401, 403, 500, 503)
        routes.get("/ledger/holders", tags=["Ledger"], responses=refused)(self.list_holders)
        refused = refusals(400, 401, 403, 404, 500, 503)
        routes.post("/ledger/holders/{id}/write-off", tags=["Ledger"], responses=refused)(
            self.write_off_holder
        )

    async def list_holders(self, _who: Operating) -> HoldersReply:
        """List the processes that spend balances and limits together.

        Needs an operator's management key. Empty with one server on SQLite without workers.
        """
        async with self.database.reading() as read:
            found = await budgets.list_holders(read)
        return HoldersReply(data=[_data(each) for each in found])

    async def write_off_holder(
        self, who: Operating, holder_id: HolderId, body: WriteOffBody
    ) -> WriteOffReply:
        """Write off a process that is gone for good, with its machine and data folder.

        Needs an operator's management key. One that still runs ends. What it had counts as used
        until a server starts on its data folder, unless it is returned. Written to the audit log.
        """
        async with self.database.writing() as write:
            found = await self.accounting.write_off(
                write, holder_id, return_rights=body.return_rights, actor=who.actor
            )
        if found is None:
            raise NotFound("No such holder.")
        return WriteOffReply(data=_data(found))


def _data(holder: budgets.Holder) -> HolderData:
    return HolderData(
        id=holder.id,
        machine=holder.machine,
        live=holder.live,
        started_at=holder.started_at,
        granted=format_credits(holder.granted_nano),
        budgets=holder.budgets,
    )
