"""Interns as they are kept, and what may be asked of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tollhouse.kernel.secret import Secret


class InternStatus(StrEnum):
    """What an intern is seen to be."""

    AWAITING_CHAT_INSTALL = "awaiting_chat_install"
    """The app of its chat service has to be installed first."""
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    DESTROYING = "destroying"
    DESTROY_FAILED = "destroy_failed"


class DesiredState(StrEnum):
    """What an intern is to become; a reconciler brings it there."""

    IDLE = "idle"
    """What it is: nobody has asked for anything else."""
    RUNNING = "running"
    STOPPED = "stopped"
    ABSENT = "absent"


class Operation(StrEnum):
    """What may be asked of an intern, and depends on its state."""

    PROVISION = "provision"
    SUSPEND = "suspend"
    DELETE = "delete"
    PATCH = "patch"
    DAEMON = "daemon"
    CHAT = "chat"


@dataclass(frozen=True, slots=True)
class InternState:
    """Where an intern stands: what it is seen to be, and what it is to become."""

    status: InternStatus
    desired: DesiredState


@dataclass(frozen=True, slots=True)
class BootProgress:
    """The step of a boot that is under way."""

    label: str
    number: int
    """Counted from 1."""
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intern:
    """An intern as it is stored."""

    id: str
    account_id: str
    workspace_id: str
    creator: str
    """Id of the user whose key made it; empty where the key is nobody's."""
    name: str
    description: str | None
    instructions: str | None
    model: str | None = None
    """None for the workspace's default."""
    state: InternState
    step: int | None = None
    """The step of its boot; None where none is under way."""
    last_failure_message: str | None = None
    vault_id: str | None = None
    """None until its own vault is made."""
    attached_vault_id: str | None
    """Another intern's, that it borrows."""
    hostname: str | None = None
    """Assigned when it is provisioned, None before; callers see the service's `hostname`."""
    number: int
    """Its own on this installation, counted from 1; the lowest that is free."""
    idempotency_key: str
    """What its creation was sent with, or what was derived from it."""
    request_digest: str
    """Of what its creation asked for."""
    loss_acknowledged: bool = False
    """Whether it may be deleted although its workspace could not be archived."""
    workspace_digest: str | None = None
    """Of its files, as it was last suspended; None where nobody knows."""
    restarts: int = 0
    """How often its sandbox was started anew since it was last provisioned, or last ran well."""
    machine: str | None = None
    """The one that has its files; None until it first boots."""
    created_at: datetime
    updated_at: datetime
    payer_hash: str | None = None
    """The key that asked for its latest boot, and answers for what it spends; None before that."""
    run: InternRun | None = None


@dataclass(frozen=True, slots=True)
class InternRun:
    """What belongs to a running intern until it is suspended."""

    model: str
    """What it was provisioned with."""
    key_hash: str
    """Of its own API key."""
    token_hash: str
    """SHA-256 of its daemon's token, in hex."""
    sealed_token: bytes = field(repr=False)
    """The token, under the key of its own vault."""


@dataclass(frozen=True, slots=True)
class InternChannel:
    """The chat service in which an intern is talked to."""

    intern_id: str
    service: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Who may talk to it, and what else the service's file keeps of it."""
    sealed_tokens: bytes | None = field(default=None, repr=False)
    """Under the key of the intern's own vault; None until it is installed."""
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class InternLease:
    """The right to act on an intern, until it runs out."""

    intern: Intern
    token: int
    """Raised with each lease: what is written under an older one is refused."""


@dataclass(frozen=True, slots=True)
class CreateIntern:
    """What is asked for when an intern is made; normalised."""

    name: str
    description: str | None = None
    instructions: str | None = None
    vault_id: str | None = None
    """Another intern's vault, to be borrowed."""
    provision: bool = False
    chat: str | None = None
    """A chat service in which it is to be installed before it runs."""


@dataclass(frozen=True, slots=True)
class DaemonOriginAndToken:
    """How a running intern's daemon is reached."""

    origin: str
    token: Secret


@dataclass(frozen=True, slots=True)
class InternFilter:
    """Which interns a list shows."""

    workspace_id: str
    statuses: frozenset[InternStatus] = frozenset()
    """Empty for all."""
