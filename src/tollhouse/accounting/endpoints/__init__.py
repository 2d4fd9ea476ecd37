"""HTTP for keys, credits, budgets, generations and the ledger, each with its wire models.

The text of an endpoint is its description in the OpenAPI document; its refusals stand before it.
An endpoint opens the transaction and commits it.
"""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Depends

from tollhouse.accounting.endpoints.budgets import BudgetEndpoints
from tollhouse.accounting.endpoints.credits import CreditsEndpoints
from tollhouse.accounting.endpoints.generation import GenerationEndpoints
from tollhouse.accounting.endpoints.keys import KeyEndpoints
from tollhouse.accounting.endpoints.ledger import LedgerEndpoints
from tollhouse.accounting.endpoints.shared import ExactNumbers
from tollhouse.accounting.ledger import LedgerService
from tollhouse.accounting.service import AccountingService
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.clock import Clock
from tollhouse.storage.database import Database


def router(  # noqa: PLR0913 - one for each thing that endpoints need
    accounting: AccountingService,
    identity: IdentityService,
    database: Database,
    clock: Clock,
    *,
    ledger: LedgerService,
    settled: Callable[[], Awaitable[None]],
) -> APIRouter:
    """Return the routes of accounting.

    `settled` is awaited before any of them looks, so that whoever has a reply sees its charge.
    """
    routes = APIRouter(dependencies=[Depends(settled)], route_class=ExactNumbers)
    for kind in (
        KeyEndpoints,
        GenerationEndpoints,
        CreditsEndpoints,
        BudgetEndpoints,
        LedgerEndpoints,
    ):
        kind(accounting, ledger, identity, database, clock).add_to(routes)
    return routes
