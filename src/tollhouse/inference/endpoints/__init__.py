"""HTTP for the catalogue: models, their endpoints, the providers. Readable without a key.

The inference routes themselves are no endpoints of this kind: they are hot, and stand in
`api.hot_routes`.
"""

from collections.abc import Mapping

from fastapi import APIRouter

from tollhouse.inference.catalog import Catalog
from tollhouse.inference.endpoints.models import CatalogEndpoints


def router(catalog: Catalog, provider_names: Mapping[str, str]) -> APIRouter:
    """Return the routes of the catalogue.

    Args:
        catalog: The models.
        provider_names: The name that users see of each provider, by slug.
    """
    routes = APIRouter()
    CatalogEndpoints(catalog, provider_names).add_to(routes)
    return routes
