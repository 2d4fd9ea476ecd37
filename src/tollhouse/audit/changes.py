"""What the record tells of a change to an account, key, policy, person or setting. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.audit.types import AuditEntry
from tollhouse.kernel.clock import iso_utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tollhouse.audit.types import AuditAction

_LEFT_OUT: Final = frozenset(
    {"id", "account_id", "hash", "secret_hash", "label", "scope", "created_at", "updated_at"}
)
"""What the row says elsewhere, and what is made of a key's text."""
_COUNTED: Final = frozenset({"patterns"})
"""Texts that no request may hold are as confidential as what they stand for."""


@dataclass(frozen=True, slots=True)
class RedactedValue:
    """A value of which the record tells that it changed, and no more."""

    value: object


def entry_of_change(
    action: AuditAction,
    actor: str,
    object_id: str,
    old: Mapping[str, Any] | None = None,
    new: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Return the entry of a change.

    Args:
        action: What was done.
        actor: Hash of the key with which it was asked for, or `operator`.
        object_id: What it was done to.
        old: The object's fields before; None where it was not there.
        new: Its fields after; None where it is not there any more.
    """
    before, after = old or {}, new or {}
    known = {**before, **after}
    name = known.get("name")
    return AuditEntry(
        action,
        actor,
        workspace_id=known.get("workspace_id"),
        name=None if isinstance(name, RedactedValue) else name,
        object_id=object_id,
        changes=None if new is None else _changes(before, after),
    )


def after_changes(
    start: Mapping[str, Any], changes: Iterable[Mapping[str, Any] | None]
) -> dict[str, Any]:
    """Return the fields that an object has after some of its changes, one after the other."""
    fields = dict(start)
    for each in changes:
        fields |= {name: change["new"] for name, change in (each or {}).items()}
    return fields


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"old": _told(name, old.get(name)), "new": _told(name, new.get(name))}
        for name in {**old, **new}
        if name not in _LEFT_OUT and new.get(name) != old.get(name)
    }


def _told(name: str, value: object) -> object:
    if isinstance(value, RedactedValue):
        return None if value.value is None else "hidden"
    if name in _COUNTED and isinstance(value, tuple):
        texts = cast("tuple[object, ...]", value)
        return f"{len(texts)} texts"
    return iso_utc(value) if isinstance(value, datetime) else value
