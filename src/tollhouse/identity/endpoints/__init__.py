"""HTTP for accounts, users, workspaces and policies, each with its wire models.

The text of an endpoint is its description in the OpenAPI document; its refusals stand before it.
An endpoint opens the transaction and commits it.
"""

from fastapi import APIRouter

from tollhouse.identity.endpoints.accounts import AccountEndpoints, UserEndpoints
from tollhouse.identity.endpoints.workspaces import PolicyEndpoints, WorkspaceEndpoints
from tollhouse.identity.service import IdentityService
from tollhouse.storage.database import Database


def router(service: IdentityService, database: Database) -> APIRouter:
    """Return the routes of identity."""
    routes = APIRouter()
    for endpoints in (AccountEndpoints, UserEndpoints, WorkspaceEndpoints, PolicyEndpoints):
        endpoints(service, database).add_to(routes)
    return routes
