"""The wire models of key management."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tollhouse.accounting.endpoints.amounts import Limit
from tollhouse.accounting.endpoints.usage import UsageReply
from tollhouse.accounting.types import KeyLimit, Reset
from tollhouse.identity.types import KeyKind, NewKey
from tollhouse.kernel.wire import (
    MOST_SKIPPED,
    OTHER_ACCOUNT,
    STORABLE,
    Body,
    Omittable,
    Reference,
    Reply,
    SentTime,
    UtcTime,
)


def _unsupported(value: object) -> object:
    # It is refused instead of stored, so that nobody relies on it.
    if value is not None:
        raise PydanticCustomError("unsupported", "is not supported, so it cannot be set")
    return value


Name = Annotated[str, Field(min_length=1), STORABLE]
LimitReset = Literal["daily", "weekly", "monthly"] | None
External = Annotated[dict[str, Any] | None, AfterValidator(_unsupported)]


class KeysQuery(BaseModel):
    """Which keys are wanted."""

    offset: int = Field(default=0, ge=0, le=MOST_SKIPPED, description="How many to skip.")
    include_disabled: bool = Field(default=False, description="Show disabled keys too.")
    include_expired: bool = Field(default=False, description="Show expired keys too.")
    workspace_id: Reference | None = Field(
        default=None, description="Id or slug of the workspace; the default one unless given."
    )
    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)


class NewKeyBody(Body):
    """A key to make."""

    name: Name
    """What people call it."""
    limit: Limit = None
    """Most credits that it may use, exact to nine decimals, as a number or a text; 0 leaves it the
    free models, null sets no limit."""
    limit_reset: LimitReset = None
    """How often the limit starts anew, at midnight UTC, weekly on Mondays; null: never."""
    include_byok_in_limit: bool = False
    """Whether own-provider-key use counts towards the limit."""
    expires_at: UtcTime | None = None
    """When it stops working, in UTC with seconds; null: never."""
    creator_user_id: Reference | None = None
    """The user who makes it."""
    workspace_id: Omittable[Reference] = None
    """Id or slug of its workspace; the default one unless given."""
    external: External = None
    """An identity at a partner. Not supported: only null is accepted."""
    kind: Literal["api", "management"] = "api"
    """What it is for: inference, or management. An intern's own key is made when it boots."""
    operator: bool = False
    """Whether a management key runs the installation; only an operator can make one."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None

    def wanted(self) -> NewKey:
        """Return the same for the service."""
        return NewKey(
            name=self.name,
            kind=KeyKind(self.kind),
            operator=self.operator,
            workspace_id=self.workspace_id,
            creator_user_id=self.creator_user_id,
            expires_at=self.expires_at,
        )

    def wanted_limit(self) -> KeyLimit:
        """Return what it may use, for the service."""
        return KeyLimit(self.limit, _reset(self.limit_reset), self.include_byok_in_limit)


class KeyChangeBody(Body):
    """What to change of a key, at least one thing; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    name: Omittable[Name] = None
    """What people call it."""
    disabled: Omittable[bool] = None
    """Whether it is refused from now on."""
    workspace_id: Omittable[Reference] = None
    """Id or slug of the workspace to move it to."""
    limit: Limit = None
    """Most credits that it may use, exact to nine decimals, as a number or a text; 0 leaves it the
    free models, null takes the limit away."""
    limit_reset: LimitReset = None
    """How often the limit starts anew, at midnight UTC, weekly on Mondays; null: never."""
    include_byok_in_limit: Omittable[bool] = None
    """Whether own-provider-key use counts towards the limit."""

    def limit_after(self, before: KeyLimit) -> KeyLimit:
        """Return what the key may use once this is done, for the service."""
        given = self.model_fields_set
        include_byok = self.include_byok_in_limit
        return KeyLimit(
            self.limit if "limit" in given else before.limit_nano,
            _reset(self.limit_reset) if "limit_reset" in given else before.reset,
            before.include_byok if include_byok is None else include_byok,
        )


def _reset(name: LimitReset) -> Reset | None:
    return None if name is None else Reset(name)


class KeyReply(UsageReply):
    """A key."""

    hash: str
    """Its SHA-256: 64 lower-case hex digits."""
    name: str
    """What people call it."""
    label: str
    """Its text, masked."""
    kind: str
    """What it is for: api, management or intern."""
    operator: bool
    """Whether it runs the installation."""
    disabled: bool
    """Whether it is refused."""
    created_at: SentTime
    """When it was made."""
    updated_at: SentTime | None
    """When it was last changed; null if never."""
    last_used_at: SentTime | None
    """When a reply was last booked on it; null if never."""
    expires_at: SentTime | None
    """When it stops working; null: never."""
    creator_user_id: str | None
    """The user who made it, where known."""
    external_user: str | None = None
    """Always null."""
    account_id: str
    """UUID of its account."""
    workspace_id: str
    """UUID of its workspace."""
    intern_id: str | None
    """The intern of an intern's key."""


class OneKey(Reply):
    """The envelope of one key."""

    data: KeyReply
    """The key."""


class IssuedKeyReply(OneKey):
    """A new key with its text."""

    key: str
    """The key's text, shown this once."""


class KeyPage(Reply):
    """Part of the list of keys."""

    data: list[KeyReply]
    """Newest first."""
