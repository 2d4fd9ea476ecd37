"""The wire models of a workspace.

Source: the public gateway's workspace object; section "Workspaces" of its clients.
"""

from typing import Annotated, Literal

from pydantic import Field

from tollhouse.kernel.wire import (
    OTHER_ACCOUNT,
    STORABLE,
    Body,
    Name,
    Omittable,
    Reference,
    Reply,
    SentTime,
)

Slug = Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$")]
Description = Annotated[str, Field(max_length=500), STORABLE]
ModelId = Annotated[str, Field(min_length=1, max_length=200), STORABLE]
ProviderSort = Literal["price", "throughput", "latency", "exacto"]
SamplingRate = Annotated[float, Field(ge=0.0001, le=1)]
ServerTool = Annotated[str, Field(max_length=100), STORABLE]
ServerTools = Annotated[list[ServerTool], Field(max_length=100)]
KeyNumbers = Annotated[list[int], Field(max_length=1000)]


class WorkspacePreferences(Reply):
    """The settings of a workspace as they are shown, with what holds where nothing was set.

    They are kept for the clients that set them. Of these, `plain_http` and `default_text_model`
    alone have an effect yet.
    """

    default_text_model: str | None = None
    """The model of interns that have none of their own."""
    default_image_model: str | None = None
    """Model for images where a request names none. Kept; has no effect yet."""
    default_provider_sort: str | None = None
    """How providers are sorted: price, throughput, latency or exacto. Kept; no effect yet."""
    is_observability_io_logging_enabled: bool = False
    """Whether requests and replies are kept for the workspace. Kept; has no effect yet."""
    is_observability_broadcast_enabled: bool = False
    """Whether traces are sent to other systems. Kept; has no effect yet."""
    is_data_discount_logging_enabled: bool = False
    """Whether data may be used for a discount. Kept; has no effect."""
    io_logging_sampling_rate: float = 1.0
    """Which share of requests is kept, 0.0001 to 1. Kept; has no effect yet."""
    io_logging_api_key_ids: list[int] | None = None
    """Keys whose requests are kept; null for all. Kept; has no effect yet."""
    disabled_server_tools: list[str] | None = None
    """Server tools that requests may not use; null for none. Kept; has no effect yet."""
    include_byok_in_budgets: bool = False
    """Whether own-provider-key use counts towards budgets."""
    plain_http: bool = False
    """Whether its interns and programs may reach hosts without TLS, where no secret is bound to
    them. Ours."""


class WorkspaceReply(WorkspacePreferences):
    """A workspace."""

    id: str
    """UUID."""
    default_guardrail_id: str
    """UUID derived from the workspace's own; there is no guardrail behind it."""
    name: str
    """What people call it."""
    slug: str
    """Its name in addresses."""
    description: str | None
    """What it is for."""
    intern_programme: bool
    """Whether it may have interns and vaults, where its account may."""
    vault_writes: bool
    """Whether its secrets may be changed, where those of its account may."""
    created_at: SentTime
    """When it was made."""
    updated_at: SentTime | None
    """When it was last changed; null if never."""
    created_by: str | None
    """The user whose key made it, where known."""


class WorkspaceFacts(Body):
    """What may be set of a workspace besides its name and slug."""

    description: Description | None = None
    """What it is for."""
    default_text_model: ModelId | None = None
    """The model of interns that have none of their own."""
    default_image_model: ModelId | None = None
    """Model for images where a request names none. Kept; has no effect yet."""
    default_provider_sort: ProviderSort | None = None
    """How providers are sorted. Kept; has no effect yet."""
    is_observability_io_logging_enabled: Omittable[bool] = None
    """Whether requests and replies are kept for the workspace. Kept; has no effect yet."""
    is_observability_broadcast_enabled: Omittable[bool] = None
    """Whether traces are sent to other systems. Kept; has no effect yet."""
    is_data_discount_logging_enabled: Omittable[bool] = None
    """Whether data may be used for a discount. Kept; has no effect."""
    io_logging_sampling_rate: Omittable[SamplingRate] = None
    """Which share of requests is kept. Kept; has no effect yet."""
    io_logging_api_key_ids: KeyNumbers | None = None
    """Keys whose requests are kept; null for all. Kept; has no effect yet."""
    disabled_server_tools: ServerTools | None = None
    """Server tools that requests may not use; empty or null for none. Kept; no effect yet."""
    plain_http: Omittable[bool] = None
    """Whether its interns and programs may reach hosts without TLS, where no secret is bound to
    them; sessions that begin from then on heed it. Ours."""

    def facts(self) -> dict[str, object]:
        """Return what the body names; an empty list of tools as none at all."""
        facts: dict[str, object] = self.model_dump(exclude_unset=True, exclude={"account_id"})
        if facts.get("disabled_server_tools") == []:
            facts["disabled_server_tools"] = None
        return facts


class NewWorkspaceBody(WorkspaceFacts):
    """A workspace to make."""

    name: Name
    """What people call it."""
    slug: Slug
    """Its name in addresses: lower-case words with hyphens between them."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None


class WorkspaceChangeBody(WorkspaceFacts):
    """What to change of a workspace; what is left out stays."""

    name: Omittable[Name] = None
    """What people call it."""
    slug: Omittable[Slug] = None
    """Its name in addresses: lower-case words with hyphens between them."""
    intern_programme: Omittable[bool] = None
    """Whether it may have interns and vaults, where its account may. For an operator alone."""
    vault_writes: Omittable[bool] = None
    """Whether its secrets may be changed, where its account's may. For an operator alone."""
