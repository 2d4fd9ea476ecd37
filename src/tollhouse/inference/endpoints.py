"""`/models`, `/model/{author}/{slug}` and `/providers`: what this installation offers.

They are readable without a key. The inference routes themselves are hot, and stand in
`api.hot_routes`.

Source: the public gateway's catalogue operations.
"""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from pydantic import Field

from tollhouse.inference.catalog import Catalog
from tollhouse.inference.model_wire import (
    AnthropicModel,
    AnthropicModelsPage,
    AnthropicModelsQuery,
    CountData,
    CountReply,
    EndpointsReply,
    ModelEndpoints,
    ModelReply,
    ModelsPage,
    NextLink,
    OneModel,
    anthropic_model,
    anthropic_page,
    endpoint_reply,
    model_reply,
)
from tollhouse.inference.types import Model
from tollhouse.kernel.wire import MOST_SKIPPED, ResponseModel, refusals

_DEFAULT_LIMIT = 500
Author = Annotated[str, Path(description="The id's part before the slash.")]
ModelName = Annotated[str, Path(description="The model's id, or an alias.")]
AnthropicVersion = Annotated[
    str | None,
    Header(description="Sent by Anthropic's clients: the answer then has Anthropic's shape."),
]
Slug = Annotated[str, Path(description="The id's part behind the slash, with its variant.")]


class ModelsQuery(AnthropicModelsQuery):
    """Which part of the list is wanted; all of it where neither is given."""

    offset: int | None = Field(default=None, ge=0, le=MOST_SKIPPED, description="How many to skip.")
    limit: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="How many to return at most: 500 where only offset is given, everything "
        "where neither is.",
    )


class ProviderReply(ResponseModel):
    """A provider."""

    name: str
    """The name that users see."""
    slug: str
    """Its short name."""
    privacy_policy_url: str | None = None
    """Always null."""
    terms_of_service_url: str | None = None
    """Always null."""
    status_page_url: str | None = None
    """Always null."""
    headquarters: str | None = None
    """Always null."""
    datacenters: list[str] | None = None
    """Always null."""


class ProvidersReply(ResponseModel):
    """The providers."""

    data: list[ProviderReply]
    """In the order of the settings."""


def router(catalog: Catalog, provider_names: Mapping[str, str]) -> APIRouter:
    """Return the routes of the catalogue, in which providers have the names given by slug."""
    endpoints, routes = CatalogEndpoints(catalog, provider_names), APIRouter()
    for path, endpoint, statuses in (
        ("/models", endpoints.list_models, (400, 403, 500)),
        ("/models/count", endpoints.count_models, (500,)),
        ("/models/{author}/{slug}/endpoints", endpoints.list_model_endpoints, (404, 500)),
        # Behind the two above, whose paths it would take: an id has a slash.
        ("/models/{name:path}", endpoints.retrieve_model, (404, 500)),
        ("/model/{author}/{slug}", endpoints.get_model, (404, 500)),
        ("/providers", endpoints.list_providers, (500,)),
    ):
        routes.get(path, tags=["Models"], responses=refusals(*statuses))(endpoint)
    return routes


class CatalogEndpoints:
    """The endpoints of the catalogue."""

    def __init__(self, catalog: Catalog, provider_names: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._replies = {model.id: model_reply(model) for model in catalog.models}
        self._listed = [
            self._replies[self._catalog.find(each.id).id].model_copy(update={"id": each.id})
            for each in catalog.listed
        ]
        self._names = provider_names

    async def list_models(
        self, query: Annotated[ModelsQuery, Query()], anthropic_version: AnthropicVersion = None
    ) -> ModelsPage | AnthropicModelsPage:
        """List the models of the catalogue. No key is needed."""
        if anthropic_version is not None:
            return anthropic_page(self._catalog.listed, query, query.limit)
        every = self._listed
        if query.offset is None and query.limit is None:
            shown, following = every, None
        else:
            limit = query.limit or _DEFAULT_LIMIT
            start, end = query.offset or 0, (query.offset or 0) + limit
            shown = every[start:end]
            following = f"/v1/models?offset={end}&limit={limit}" if end < len(every) else None
        return ModelsPage(data=list(shown), total_count=len(every), links=NextLink(next=following))

    async def count_models(self) -> CountReply:
        """Tell how many models there are."""
        return CountReply(data=CountData(count=len(self._listed)))

    async def get_model(self, author: Author, slug: Slug) -> OneModel:
        """Show a model."""
        return OneModel(data=self._replies[self._find(author, slug).id])

    async def retrieve_model(
        self, name: ModelName, anthropic_version: AnthropicVersion = None
    ) -> ModelReply | AnthropicModel:
        """Show a model, in the shape of OpenAI's or Anthropic's clients."""
        model = self._catalog.find(name)
        return self._replies[model.id] if anthropic_version is None else anthropic_model(model)

    async def list_model_endpoints(self, author: Author, slug: Slug) -> EndpointsReply:
        """List who serves a model."""
        model = self._find(author, slug)
        shown = self._replies[model.id]
        data = ModelEndpoints(
            id=model.id,
            name=model.name,
            created=shown.created,
            description=model.description,
            architecture=shown.architecture,
            endpoints=[
                endpoint_reply(model, each, self._names.get(each.provider, each.provider))
                for each in model.endpoints
            ],
        )
        return EndpointsReply(data=data)

    async def list_providers(self) -> ProvidersReply:
        """List the providers."""
        data = [ProviderReply(name=name, slug=slug) for slug, name in self._names.items()]
        return ProvidersReply(data=data)

    def _find(self, author: str, slug: str) -> Model:
        return self._catalog.find(f"{author}/{slug}")
