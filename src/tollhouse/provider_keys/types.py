"""Own keys of providers: as they are stored, and as requests use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from tollhouse.kernel.secret import Secret

Region = Literal["global", "europe", "us"]


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What a customer says of an own key.

    Source: the published clients' types of own keys, `byok`.
    """

    name: str | None = None
    disabled: bool = False
    is_fallback: bool = False
    """It is asked after the gateway's own endpoints; else before them."""
    is_required: bool = False
    """Models that it is for never use the gateway's own endpoints at its provider."""
    is_byok_only: bool = False
    """No model does, whether or not the key is for it."""
    sort_order: int = 0
    """Its place among the keys of its provider."""
    allowed_models: tuple[str, ...] | None = None
    allowed_user_ids: tuple[str, ...] | None = None
    allowed_api_key_hashes: tuple[str, ...] | None = None
    declared_region: Region | None = None
    """Where its account at the provider works, as the customer says."""
    declared_zdr: bool | None = None
    """Whether its account at the provider keeps nothing, as the customer says."""


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """An own key as it is stored: what may be told of it, and its sealed text."""

    id: str
    account_id: str
    workspace_id: str
    provider: str
    """The provider's slug."""
    label: str
    """Its text, masked."""
    rules: KeyRules
    version: int
    """Raised when another text takes the place of this one."""
    created_at: datetime
    vault_id: str
    """The vault whose data key seals it."""
    sealed: bytes = field(repr=False)
    updated_at: datetime | None = None
    last_error: str | None = None
    """Why the provider did not take it last; None since it was stored anew."""
    last_error_at: datetime | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OwnKey:
    """An enabled own key, opened: one object for as long as nothing about it changes."""

    stored: ProviderKey
    secret: Secret | None
    """What the provider is shown; None where it cannot be opened or used, and is never asked.
    Its rules hold all the same: no credits are spent because a key is out of order."""

    @property
    def rules(self) -> KeyRules:
        """What the customer says of it."""
        return self.stored.rules
