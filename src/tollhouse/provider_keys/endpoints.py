"""`/byok`: customers' own keys of providers. A key's text goes in and never comes out.

Source: the public gateway's operations on own keys, in the published clients' `byok`;
`account_id`, `updated_at`, `last_error`, and `sort_order` in bodies are ours.
"""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field

from tollhouse.identity.callers import Managing, OfAccount
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.secret import Secret
from tollhouse.kernel.wire import (
    OTHER_ACCOUNT,
    STORABLE,
    AccountPageQuery,
    Deleted,
    Omittable,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    refusals,
)
from tollhouse.provider_keys.policy import LONGEST
from tollhouse.provider_keys.service import ProviderKeyService
from tollhouse.provider_keys.types import KeyRules, ProviderKey

_MOST = 100
Id = Annotated[Reference, Path(description="Id of the own key.")]
Provider = Annotated[str, Field(min_length=1, max_length=200), STORABLE]
Text = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST, json_schema_extra={"format": "password"}, repr=False),
    STORABLE,
]
KeyName = Annotated[str, Field(max_length=255), STORABLE]
Listed = Annotated[str, Field(min_length=1, max_length=200), STORABLE]
Items = Annotated[list[Listed], Field(max_length=_MOST)]
Hash = Annotated[str, Field(pattern=r"^[a-f0-9]{64}$")]
Hashes = Annotated[list[Hash], Field(min_length=1, max_length=_MOST)]
Region = Literal["global", "europe", "us"]
Place = Annotated[int, Field(ge=0, le=1_000_000)]


class ProviderKeysQuery(AccountPageQuery):
    """Which own keys are wanted."""

    workspace_id: Reference | None = Field(
        default=None, description="Id or slug of the workspace; the default one unless given."
    )
    provider: Reference | None = Field(default=None, description="Slug of a provider.")


class RulesBody(RequestModel):
    """What may be said of an own key."""

    name: KeyName | None = None
    """What people call it."""
    disabled: Omittable[bool] = None
    """Whether it is kept and not used."""
    is_fallback: Omittable[bool] = None
    """Whether it is asked after the gateway's own endpoints, in place of before them."""
    is_required: Omittable[bool] = None
    """Whether the models that it is for never use the gateway's own endpoints at this provider."""
    is_byok_only: Omittable[bool] = None
    """Whether no model at all uses them. Cannot be combined with `is_fallback`."""
    allowed_models: Items | None = None
    """The models that it is for; null: all."""
    allowed_user_ids: Items | None = None
    """The users whose keys may use it; null: all."""
    allowed_api_key_hashes: Hashes | None = None
    """The keys of this account that may use it; null: all."""
    declared_region: Region | None = None
    """Where its account at the provider works. Kept; this installation has no regions."""
    declared_zdr: bool | None = None
    """Whether its account at the provider keeps nothing: true admits requests that ask for `zdr`.
    """
    sort_order: Omittable[Place] = None
    """Its place among the keys of its provider, the lowest first; behind the others unless given.
    Ours."""

    def given(self) -> dict[str, Any]:
        """Return the rules that the body names."""
        names = self.model_fields_set & set(KeyRules.__slots__)
        return {name: _tuple(getattr(self, name)) for name in names}


class NewProviderKeyBody(RulesBody):
    """An own key to store."""

    provider: Provider
    """The provider's slug, as `GET /providers` has it."""
    key: Text
    """The key: one text, or a JSON object as a text for providers that need more. Kept sealed,
    never returned."""
    workspace_id: Omittable[Reference] = None
    """Id or slug of the workspace that uses it; the default one unless given."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None


class ProviderKeyChangeBody(RulesBody):
    """What to change of an own key, at least one thing; what is left out stays, null clears."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    key: Omittable[Text] = None
    """A key in place of the one before."""


class ProviderKeyReply(ResponseModel):
    """An own key, without its text."""

    id: str
    """UUID."""
    provider: str
    """The provider's slug."""
    name: str | None
    """What people call it."""
    label: str
    """Its text, masked."""
    disabled: bool
    """Whether it is not used."""
    is_fallback: bool
    """Whether it is asked after the gateway's own endpoints."""
    is_required: bool
    """Whether the models that it is for never use the gateway's own endpoints at this provider."""
    is_byok_only: bool
    """Whether no model at all uses them."""
    sort_order: int
    """Its place among the keys of its provider, the lowest first."""
    allowed_models: list[str] | None
    """The models that it is for; null: all."""
    allowed_user_ids: list[str] | None
    """The users whose keys may use it; null: all."""
    allowed_api_key_hashes: list[str] | None
    """The keys that may use it; null: all."""
    declared_region: str | None
    """Where its account at the provider works, as was said of it."""
    declared_zdr: bool | None
    """Whether its account at the provider keeps nothing, as was said of it."""
    workspace_id: str | None
    """UUID of the workspace that uses it."""
    created_at: SentTime
    """When it was stored."""
    updated_at: SentTime | None
    """When it was last changed; null if never. Ours."""
    last_error: str | None
    """Why the provider did not take it last; null: since it was stored, it did. Ours."""
    last_error_at: SentTime | None
    """When that was. Ours."""


class OneProviderKey(ResponseModel):
    """The envelope of one own key."""

    data: ProviderKeyReply
    """The own key."""


class ProviderKeyPage(ResponseModel):
    """Part of the list of own keys."""

    data: list[ProviderKeyReply]
    """By provider, in the order in which they are asked."""
    total_count: int
    """How many there are altogether."""


@dataclass(frozen=True, slots=True)
class ProviderKeyEndpoints:
    """The endpoints of own keys."""

    service: ProviderKeyService

    async def list_provider_keys(
        self, who: Managing, query: Annotated[ProviderKeysQuery, Query()]
    ) -> ProviderKeyPage:
        """List the own keys of a workspace."""
        page = await self.service.keys(
            who, query.account_id, query.workspace_id, query.provider, query.window()
        )
        return ProviderKeyPage(data=[_reply(key) for key in page.items], total_count=page.total)

    async def create_provider_key(self, who: Managing, body: NewProviderKeyBody) -> OneProviderKey:
        """Store an own key; in force before the answer."""
        given = body.given()
        key = await self.service.create(
            who,
            body.account_id,
            body.workspace_id,
            body.provider,
            Secret(body.key),
            KeyRules(**given),
            placed="sort_order" in given,
        )
        return OneProviderKey(data=_reply(key))

    async def get_provider_key(
        self,
        who: Managing,
        id: Id,  # noqa: A002 - the parameter's published name
        account_id: OfAccount = None,
    ) -> OneProviderKey:
        """Show an own key."""
        return OneProviderKey(data=_reply(await self.service.key(who, account_id, id)))

    async def change_provider_key(
        self,
        who: Managing,
        id: Id,  # noqa: A002 - the parameter's published name
        body: ProviderKeyChangeBody,
        account_id: OfAccount = None,
    ) -> OneProviderKey:
        """Change what the body names of an own key; in force before the answer."""
        if not body.model_fields_set:
            raise Invalid("No update fields provided.")
        secret = None if body.key is None else Secret(body.key)
        key = await self.service.change(who, account_id, id, body.given(), secret)
        return OneProviderKey(data=_reply(key))

    async def delete_provider_key(
        self,
        who: Managing,
        id: Id,  # noqa: A002 - the parameter's published name
        account_id: OfAccount = None,
    ) -> Deleted:
        """Remove an own key for ever; in force before the answer."""
        await self.service.delete(who, account_id, id)
        return Deleted()


def router(service: ProviderKeyService) -> APIRouter:
    """Return the routes of own keys."""
    routes, own = APIRouter(), ProviderKeyEndpoints(service)
    rows = (
        ("GET", "/byok", own.list_provider_keys, (400, 401, 403, 404, 500)),
        ("POST", "/byok", own.create_provider_key, (400, 401, 403, 404, 500, 503)),
        ("GET", "/byok/{id}", own.get_provider_key, (400, 401, 403, 404, 500)),
        ("PATCH", "/byok/{id}", own.change_provider_key, (400, 401, 403, 404, 500, 503)),
        ("DELETE", "/byok/{id}", own.delete_provider_key, (400, 401, 403, 404, 500)),
    )
    for method, path, endpoint, statuses in rows:
        routes.add_api_route(
            path,
            endpoint,
            methods=[method],
            tags=["Own provider keys"],
            status_code=201 if method == "POST" else 200,
            responses=refusals(*statuses),
        )
    return routes


def _reply(key: ProviderKey) -> ProviderKeyReply:
    return ProviderKeyReply.model_validate(asdict(key) | asdict(key.rules))


def _tuple(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    return tuple(cast("list[str]", value)) if isinstance(value, list) else value
