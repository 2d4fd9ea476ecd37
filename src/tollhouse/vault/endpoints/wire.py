"""The wire models of secrets: what may be told of them, never a value.

Source: the public gateway's vault; `explain` and what an operator asks for are ours.
"""

from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from tollhouse.kernel import hosts
from tollhouse.kernel.wire import OTHER_ACCOUNT, Body, Reference, Reply, SentTime
from tollhouse.vault import policy
from tollhouse.vault.types import Resolved, Scope, StoredSecret, Verdict

_NAME: JsonDict = {"minLength": 1, "maxLength": policy.LONGEST_NAME, "pattern": policy.NAME}
_VALUE: JsonDict = {"minLength": 1, "maxLength": policy.LONGEST_VALUE}
_HOSTS: JsonDict = {
    "minItems": 1,
    "maxItems": policy.MOST_HOSTS,
    "items": {"type": "string", "minLength": 1, "maxLength": hosts.LONGEST_AS_SENT},
}
_NAMES: JsonDict = {"minItems": 1, "maxItems": policy.MOST_COPIED, "uniqueItems": True}


class WriteBody(Body):
    """A secret to store."""

    value: Annotated[str, Field(json_schema_extra={**_VALUE, "format": "password"}, repr=False)]
    """What is kept secret: 1 to 65536 characters, none of them a line break. Never returned."""
    hosts: Annotated[list[str], Field(json_schema_extra=_HOSTS)]
    """The 1 to 100 hosts that may receive it, such as api.example.com: each exactly, without
    scheme, port, path or wildcard."""


class CopyBody(Body):
    """Which secrets of the workspace to copy."""

    names: Annotated[list[str], Field(json_schema_extra=_NAMES)]
    """1 to 100 names, each once."""


class SecretReply(Reply):
    """What may be told of a secret."""

    name: str
    """Unique in its vault."""
    hosts: list[str] | None
    """Those that may receive it; null for one from before secrets were bound to hosts."""
    fingerprint: str | None
    """`sha256:<hex>`: equal for equal values in one vault. Null exactly where `hosts` is."""
    created_at: SentTime
    """When the name was first stored."""


class OneSecret(Reply):
    """The envelope of one secret."""

    data: SecretReply
    """The secret."""


class SecretList(Reply):
    """The envelope of some secrets."""

    data: list[SecretReply]
    """In the order in which they were named."""


class SecretPage(Reply):
    """Part of the list of a vault's secrets."""

    data: list[SecretReply]
    """By name."""
    has_more: bool
    """Whether there are further ones."""


class EffectiveReply(SecretReply):
    """The secret that an intern receives under a name."""

    scope: Scope
    """Whose vault it comes from: intern, attached or workspace."""


class EffectivePage(Reply):
    """Part of the list of what an intern receives."""

    data: list[EffectiveReply]
    """By name, one for each."""
    has_more: bool
    """Whether there are further ones."""


class HiddenReply(SecretReply):
    """A secret that another one of its name stands before."""

    scope: Scope
    """Whose vault it is in."""
    version: int
    """Counted from 1."""


class ExplainedReply(EffectiveReply):
    """The same, with why it is this one."""

    version: int
    """Counted from 1."""
    hidden: list[HiddenReply]
    """Those of the same name that lost against it, the strongest first."""
    verdict: Verdict | None
    """Whether it goes to the `host` that was asked about, or why not; null without one."""


class ExplainedPage(Reply):
    """Part of the list of what an intern receives, and why."""

    data: list[ExplainedReply]
    """By name, one for each."""
    has_more: bool
    """Whether there are further ones."""


class SecretsQuery(BaseModel):
    """Which part of a list is wanted."""

    limit: int = Field(default=100, ge=1, le=100, description="How many to return at most.")
    offset: int = Field(default=0, ge=0, le=10_000, description="How many to skip.")


class EffectiveQuery(SecretsQuery):
    """Which part of what an intern receives is wanted, and how much of it."""

    explain: bool = Field(
        default=False, description="Also tell versions, and the secrets that lost. Ours."
    )
    host: str | None = Field(
        default=None,
        description="With `explain`: tell of each whether it goes to this host. Ours.",
    )


class UnboundSecret(Body):
    """A secret of an older store."""

    name: Annotated[str, Field(json_schema_extra=_NAME)]
    """What it is called."""
    value: Annotated[str, Field(json_schema_extra={**_VALUE, "format": "password"}, repr=False)]
    """What is kept secret."""


class ImportBody(Body):
    """Secrets of an older store, which bound nothing to hosts."""

    workspace_id: Reference
    """Id or slug of the workspace whose they become."""
    secrets: Annotated[list[UnboundSecret], Field(min_length=1, max_length=1000)]
    """Each name once."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None


class ImportedReply(Reply):
    """What came of an import."""

    imported: list[str]
    """Names that were taken in."""
    kept: list[str]
    """Names that a secret with hosts has already, which stays."""


class OneImport(Reply):
    """The envelope of an import."""

    data: ImportedReply
    """What came of it."""


class RotatedReply(Reply):
    """What a rotation of the key-encryption key did."""

    kek_id: str
    """The key in use from now on, by a name that tells nothing of it."""
    vaults: int
    """How many data keys were wrapped with it."""


class OneRotation(Reply):
    """The envelope of a rotation."""

    data: RotatedReply
    """How many vaults were sealed anew, and with which key."""


def secret_reply(secret: StoredSecret) -> SecretReply:
    """Return what may be told of a secret."""
    return SecretReply(**_told(secret))


def effective_reply(resolved: Resolved) -> EffectiveReply:
    """Return what may be told of a name's secret."""
    return EffectiveReply(**_told(resolved.secret), scope=resolved.scope)


def explained_reply(resolved: Resolved, verdict: Verdict | None) -> ExplainedReply:
    """Return the same with why it is this one."""
    return ExplainedReply(
        **_told(resolved.secret),
        scope=resolved.scope,
        version=resolved.secret.version,
        hidden=[
            HiddenReply(**_told(secret), scope=scope, version=secret.version)
            for scope, secret in resolved.hidden
        ],
        verdict=verdict,
    )


def _told(secret: StoredSecret) -> dict[str, Any]:
    return {
        "name": secret.name,
        "hosts": None if secret.hosts is None else list(secret.hosts),
        "fingerprint": secret.fingerprint,
        "created_at": secret.created_at,
    }
