"""`/models`, `/model/{author}/{slug}` and `/providers`: what this installation offers.

Source: the public gateway's catalogue operations.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from pydantic import Field

from tollhouse.inference.catalog import Catalog
from tollhouse.inference.endpoints.anthropic_models import (
    AnthropicModel,
    AnthropicModelsPage,
    AnthropicModelsQuery,
    anthropic_model,
    anthropic_page,
)
from tollhouse.inference.endpoints.model_wire import (
    CountData,
    CountReply,
    EndpointReply,
    EndpointsReply,
    ModelEndpoints,
    ModelReply,
    ModelsPage,
    NextLink,
    OneModel,
    endpoint_reply,
    model_reply,
)
from tollhouse.inference.types import Model
from tollhouse.kernel.wire import MOST_SKIPPED, Reply, refusals

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


class ProviderReply(Reply):
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


class ProvidersReply(Reply):
    """The providers."""

    data: list[ProviderReply]
    """In the order of the settings."""


class CatalogEndpoints:
    """The endpoints of the catalogue."""

    def __init__(self, catalog: Catalog, provider_names: Mapping[str, str]) -> None:
        """Take the catalogue, and render it once: it never changes."""
        self._catalog = catalog
        self._replies: Mapping[str, ModelReply] = {
            model.id: model_reply(model) for model in catalog.models
        }
        self._names = provider_names

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.get("/models", tags=["Models"], responses=refusals(400, 403, 500))(self.list_models)
        routes.get("/models/count", tags=["Models"], responses=refusals(500))(self.count_models)
        routes.get(
            "/models/{author}/{slug}/endpoints", tags=["Models"], responses=refusals(404, 500)
        )(self.list_model_endpoints)
        # Behind the two above, whose paths it would take: an id has a slash.
        routes.get("/models/{name:path}", tags=["Models"], responses=refusals(404, 500))(
            self.retrieve_model
        )
        routes.get("/model/{author}/{slug}", tags=["Models"], responses=refusals(404, 500))(
            self.get_model
        )
        routes.get("/providers", tags=["Models"], responses=refusals(500))(self.list_providers)

    async def list_models(
        self,
        query: Annotated[ModelsQuery, Query()],
        anthropic_version: AnthropicVersion = None,
    ) -> ModelsPage | AnthropicModelsPage:
        """List the models of the catalogue. No key is needed."""
        if anthropic_version is not None:
            return anthropic_page(self._catalog.models, query, query.limit)
        every = tuple(self._replies.values())
        if query.offset is None and query.limit is None:
            shown, following = every, None
        else:
            shown, following = _part(every, query.offset or 0, query.limit or _DEFAULT_LIMIT)
        return ModelsPage(data=list(shown), total_count=len(every), links=NextLink(next=following))

    async def count_models(self) -> CountReply:
        """Tell how many models there are."""
        return CountReply(data=CountData(count=len(self._replies)))

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
            endpoints=self._endpoints(model),
        )
        return EndpointsReply(data=data)

    async def list_providers(self) -> ProvidersReply:
        """List the providers."""
        data = [ProviderReply(name=name, slug=slug) for slug, name in self._names.items()]
        return ProvidersReply(data=data)

    def _find(self, author: str, slug: str) -> Model:
        return self._catalog.find(f"{author}/{slug}")

    def _endpoints(self, model: Model) -> list[EndpointReply]:
        return [
            endpoint_reply(model, endpoint, self._names.get(endpoint.provider, endpoint.provider))
            for endpoint in model.endpoints
        ]


def _part(
    every: Sequence[ModelReply], offset: int, limit: int
) -> tuple[Sequence[ModelReply], str | None]:
    end = offset + limit
    following = f"/v1/models?offset={end}&limit={limit}" if end < len(every) else None
    return every[offset:end], following
