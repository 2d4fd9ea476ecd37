"""Entries of the audit log, and the chain that they stand in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

INSTALLATION: Final = "installation"
"""The chain of what concerns no single account."""
GENESIS: Final = "0" * 64
"""What stands before the first entry of a chain."""


class AuditAction(StrEnum):
    """What was done."""

    SECRET_WRITTEN = "secret_written"  # noqa: S105 - a name, and no secret
    SECRET_DELETED = "secret_deleted"  # noqa: S105 - the same
    SECRET_COPIED = "secret_copied"  # noqa: S105 - the same
    SECRET_IMPORTED = "secret_imported"  # noqa: S105 - the same
    SECRET_RELEASED = "secret_released"  # noqa: S105 - the same
    VAULT_DELETED = "vault_deleted"
    KEY_ROTATED = "key_rotated"
    DAEMON_REVEALED = "daemon_revealed"
    """The token of an intern's daemon was shown."""
    CHANNEL_INSTALLED = "channel_installed"
    """An intern's app was installed in a chat service."""
    OUTBOUND_OPENED = "outbound_opened"
    """Reserved networks (`hosts`) and authorities (`name`) that an operator lets be called."""
    ACCOUNT_CREATED = "account_created"
    ACCOUNT_CHANGED = "account_changed"
    WORKSPACE_CREATED = "workspace_created"
    WORKSPACE_CHANGED = "workspace_changed"
    WORKSPACE_DELETED = "workspace_deleted"
    USER_CREATED = "user_created"
    USER_CHANGED = "user_changed"
    KEY_CREATED = "key_created"
    KEY_CHANGED = "key_changed"
    KEY_DELETED = "key_deleted"
    PROVIDER_KEY_CREATED = "provider_key_created"
    PROVIDER_KEY_CHANGED = "provider_key_changed"
    PROVIDER_KEY_DELETED = "provider_key_deleted"
    ACCOUNT_POLICY_CHANGED = "account_policy_changed"
    WORKSPACE_POLICY_CHANGED = "workspace_policy_changed"
    KEY_POLICY_CHANGED = "key_policy_changed"
    BUDGET_SET = "budget_set"
    """The limit of a workspace, a user or an end user."""
    BUDGET_REMOVED = "budget_removed"
    HOLDER_WRITTEN_OFF = "holder_written_off"
    """A process that spent budgets with others; whether they have what it had."""
    CREDITS_POSTED = "credits_posted"
    SETTINGS_CHANGED = "settings_changed"
    """A server started with other settings than the one before it."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done; it names secrets and never holds a value."""

    action: AuditAction
    actor: str
    """Hash of the key with which it was asked for, or `operator`."""
    workspace_id: str | None = None
    intern_id: str | None = None
    """The intern that it was done for, or by."""
    vault_id: str | None = None
    name: str | None = None
    """Of the secret, or of the account, workspace, user or key."""
    version: int | None = None
    """Of the secret, after it was done."""
    hosts: tuple[str, ...] | None = None
    """Those that the secret is bound to, or the one that it was asked for."""
    verdict: str = "done"
    """`done`, or why it was refused."""
    object_id: str | None = None
    """Of the account, workspace, user, key (its hash) or posting that it was done to."""
    changes: Mapping[str, Any] | None = None
    """Fields with their `old` and `new` values, as JSON has them."""


@dataclass(frozen=True, slots=True)
class RedactedValue:
    """A value of which the audit log tells that it changed, and no more."""

    value: object


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry in its place."""

    chain: str
    """An account's id, or `INSTALLATION`."""
    seq: int
    """Counted from 1 in its chain, without a gap."""
    at: datetime
    """When, to the millisecond."""
    entry: AuditEntry
    hash: str
    """Of this row and, through the hash before it, of all before it: 64 hex digits."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of a chain."""

    seq: int
    hash: str


START: Final = ChainHead(0, GENESIS)
"""The head of a chain without a row."""


@dataclass(frozen=True, slots=True)
class ChainFault:
    """Where a chain is not as it was written."""

    seq: int
    """The row at which that shows."""
    reason: str
