"""Vaults, the secrets in them, and whose requests receive which of them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from tollhouse.kernel.secret import Secret

GATEWAY_HOST: Final = "gateway.internal"
"""The name by which interns reach the gateway."""


class Scope(StrEnum):
    """Where a secret that an intern receives comes from; the first one wins by name."""

    INTERN = "intern"
    ATTACHED = "attached"
    WORKSPACE = "workspace"


class VaultKind(StrEnum):
    """Who owns a vault."""

    WORKSPACE = "workspace"
    INTERN = "intern"


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A vault's data key, as it is stored."""

    kek_id: str
    """The key-encryption key that opens it."""
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Vault:
    """A set of secrets under one data key."""

    id: str
    account_id: str
    workspace_id: str
    kind: VaultKind
    key: WrappedKey
    created_at: datetime
    changes: int = 0
    """Raised with each change to its secrets."""


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret that is to be stored under a name."""

    value: Secret
    hosts: tuple[str, ...]
    """Normalised, at least one."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret as it is stored: what may be told of it, and its sealed value."""

    vault_id: str
    name: str
    version: int
    """Counted from 1."""
    hosts: tuple[str, ...] | None
    """Those that may receive it; None for one from before secrets were bound to hosts."""
    fingerprint: str | None
    """Equal for equal values in one vault; None exactly where `hosts` is."""
    created_at: datetime
    """When the name was first stored."""
    updated_at: datetime
    sealed: bytes = field(repr=False)

    @property
    def is_legacy(self) -> bool:
        """Whether it comes from before secrets were bound to hosts."""
        return self.hosts is None


@dataclass(frozen=True, slots=True)
class VaultSubject:
    """Somebody whose requests receive secrets: an intern."""

    intern_id: str
    account_id: str
    workspace_id: str
    own_vault_id: str
    attached_vault_id: str | None
    """Borrowed from another intern; it may be gone."""
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Recipient:
    """Whose requests receive secrets: an intern, or a program that runs for a whole workspace."""

    account_id: str
    workspace_id: str
    intern_id: str | None
    """None for a program: it receives the workspace's secrets and no others."""
    actor: str
    """Who the record says that asked: the hash of its key, or `operator`."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The secret that a subject receives under a name."""

    secret: StoredSecret
    scope: Scope
    hidden: tuple[tuple[Scope, StoredSecret], ...] = ()
    """Secrets of the same name that lost against it, the strongest first."""


class Verdict(StrEnum):
    """Whether a secret goes to a host, or why not."""

    RELEASED = "released"
    UNKNOWN_NAME = "unknown_name"
    OTHER_HOST = "other_host"
    """It is bound to other hosts. One of the same name that lost is not looked at."""
    UNBOUND = "unbound"
    """It is bound to no host, and the operator does not release such secrets."""
