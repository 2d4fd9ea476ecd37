"""The wire models of key management.

What nothing enforces yet is refused instead of stored, so that nobody relies on it.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from tollhouse.accounting.endpoints.usage import UsageReply
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


def _not_enforced(value: object) -> object:
    if value is not None and value is not False:
        raise PydanticCustomError(
            "not_enforced", "is not enforced yet, so it cannot be set; leave it out"
        )
    return value


Name = Annotated[str, Field(min_length=1), STORABLE]
Limit = Annotated[float | None, AfterValidator(_not_enforced)]
LimitReset = Annotated[Literal["daily", "weekly", "monthly"] | None, AfterValidator(_not_enforced)]
IncludeByok = Annotated[bool, AfterValidator(_not_enforced)]
External = Annotated[dict[str, Any] | None, AfterValidator(_not_enforced)]


class KeysQuery(BaseModel):
    """Which keys are wanted."""

    offset: int = Field(default=0, ge=0, le=MOST_SKIPPED, description="How many to skip.")
    include_disabled: bool = Field(default=False, description="Show disabled keys too.")
    include_expired: bool = Field(default=False, description="Show expired keys too.")
    workspace_id: Reference | None = Field(
        default=None, description="Id or slug of the workspace; the default one unless given."
    )
    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)


class Unenforced(Body):
    """What clients may ask for and nothing enforces yet."""

    limit: Limit = None
    """Most credits that the key may use. Not enforced yet: only null is accepted."""
    limit_reset: LimitReset = None
    """When the limit starts anew. Not enforced yet: only null is accepted."""
    include_byok_in_limit: IncludeByok = False
    """Whether own-provider-key use counts. Not enforced yet: only false is accepted."""


class NewKeyBody(Unenforced):
    """A key to make."""

    name: Name
    """What people call it."""
    expires_at: UtcTime | None = None
    """When it stops working, in UTC with seconds; null: never."""
    creator_user_id: Reference | None = None
    """The user who makes it."""
    workspace_id: Omittable[Reference] = None
    """Id or slug of its workspace; the default one unless given."""
    external: External = None
    """An identity at a partner. Not supported: only null is accepted."""
    kind: Literal["api", "management", "intern"] = "api"
    """What it is for: inference, management, or one intern."""
    operator: bool = False
    """Whether a management key runs the installation; only an operator can make one."""
    intern_id: Reference | None = None
    """The intern of an intern's key, which needs one; other kinds have none."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None

    def wanted(self) -> NewKey:
        """Return the same for the service."""
        return NewKey(
            name=self.name,
            kind=KeyKind(self.kind),
            operator=self.operator,
            workspace_id=self.workspace_id,
            creator_user_id=self.creator_user_id,
            intern_id=self.intern_id,
            expires_at=self.expires_at,
        )


class KeyChangeBody(Unenforced):
    """What to change of a key; what is left out stays."""

    name: Omittable[Name] = None
    """What people call it."""
    disabled: Omittable[bool] = None
    """Whether it is refused from now on."""
    workspace_id: Omittable[Reference] = None
    """Id or slug of the workspace to move it to."""


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
