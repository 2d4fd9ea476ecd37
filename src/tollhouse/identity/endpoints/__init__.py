"""HTTP for accounts, users, workspaces and policies, each with its wire models.

The text of an endpoint is its description in the OpenAPI document; its refusals stand where it is
added. An endpoint opens the transaction and commits it.
"""

from fastapi import APIRouter

from tollhouse.identity.endpoints.accounts import Accounts
from tollhouse.identity.endpoints.policies import Policies
from tollhouse.identity.endpoints.users import Users
from tollhouse.identity.endpoints.workspaces import Workspaces
from tollhouse.identity.service import IdentityService
from tollhouse.storage.database import Database


def router(service: IdentityService, database: Database) -> APIRouter:
    """Return the routes of identity."""
    routes = APIRouter()
    Accounts(service, database).add_to(routes)
    Users(service, database).add_to(routes)
    Workspaces(service, database).add_to(routes)
    Policies(service, database).add_to(routes)
    return routes
