"""Interns as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollhouse.cli.output import Column, Item, Listing, Record, Report, field

SETTLED: Final = frozenset({"running", "failed", "stopped", "destroy_failed"})
"""Statuses in which nothing is under way."""
_FAILED: Final = frozenset({"failed", "destroy_failed"})
_FIELDS: Final = (
    "id",
    "name",
    "status",
    "last_failure_message",
    "model",
    "hostname",
    "description",
    "vault_id",
    "attached_vault_id",
    "created_at",
    "updated_at",
)


def intern_report(intern: Item, note: str | None = None) -> Report:
    """Return what is shown of one intern; an exit code of 1 where it has failed."""
    shown = {**intern, "status": status_of(intern)}
    if intern["model"] is None:
        shown["model"] = "the workspace's default"
    fields = [name for name in _FIELDS if name in intern]
    failed = intern["status"] in _FAILED
    return Report(intern, Record(shown, fields, note), exit_code=1 if failed else 0)


def interns_listing(interns: Sequence[Item]) -> Listing:
    """Return what is shown of a list."""
    columns = [
        field("id"),
        field("name"),
        Column("status", status_of),
        field("model"),
        field("created_at", "created"),
    ]
    return Listing(interns, columns)


def status_of(intern: Item) -> str:
    """Return an intern's status, with the step of a boot that is under way."""
    step = intern["progress"]
    if step is None:
        return str(intern["status"])
    return f"{intern['status']} ({step['step_number']}/{step['total_steps']}: {step['step_label']})"
