"""`/ledger/...`: whether the books are right, statements, charges that nobody knows. Ours."""

from typing import Annotated

from fastapi import APIRouter, Query

from tollhouse.accounting.endpoints.ledger_wire import (
    StatementQueryFields,
    StatementReply,
    UnknownReply,
    VerifyReply,
    statement_reply,
    unknown_reply,
    verify_reply,
)
from tollhouse.accounting.ledger.service import LedgerService
from tollhouse.accounting.service import AccountingService
from tollhouse.identity.access import Managing, OfAccount, Operating
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.wire import refusals
from tollhouse.storage.database import Database


class LedgerEndpoints:
    """The endpoints of the ledger."""

    def __init__(
        self,
        ledger: LedgerService,
        accounting: AccountingService,
        identity: IdentityService,
        database: Database,
    ) -> None:
        """Take what they need."""
        self._ledger = ledger
        self._accounting = accounting
        self._identity = identity
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.get("/ledger/verify", tags=["Ledger"], responses=refusals(401, 403, 500, 503))(
            self.verify_ledger
        )
        of_account = refusals(400, 401, 403, 404, 500, 503)
        routes.get("/ledger/statement", tags=["Ledger"], responses=of_account)(self.get_statement)
        routes.get("/ledger/unknown", tags=["Ledger"], responses=of_account)(
            self.list_unknown_costs
        )

    async def verify_ledger(self, _who: Operating) -> VerifyReply:
        """Recompute every balance and counter from the postings and generations.

        Needs an operator's management key. Each difference is named, a thousand at most. A million
        generations take half a minute; nothing waits for it.
        """
        async with self._database.reading() as read:
            found = await self._ledger.verify(read)
        return verify_reply(found)

    async def get_statement(
        self, who: Managing, query: Annotated[StatementQueryFields, Query()]
    ) -> StatementReply:
        """Show what happened to an account's money in a period.

        Postings stand in order, each with the balance after it; charges of one UTC day and model
        are one line at the end of their day, unless `detail` asks for each. Amounts are texts,
        exact to nine decimals: the opening balance and all lines add up to the closing balance.
        """
        async with self._database.reading() as read:
            account_id = await self._identity.home(read, who, query.account_id)
            found = await self._ledger.statement(read, query.wanted(account_id))
        return statement_reply(found)

    async def list_unknown_costs(self, who: Managing, account_id: OfAccount = None) -> UnknownReply:
        """List the generations whose cost nobody knows, newest first, a thousand at most.

        An operator who names no account sees those of all. An adjustment that names a generation
        takes it off the list.
        """
        async with self._database.reading() as read:
            wanted = account_id
            if account_id is not None or not who.operator:
                wanted = await self._identity.home(read, who, account_id)
            found = await self._accounting.unknown_costs(read, wanted)
        return unknown_reply(found)
