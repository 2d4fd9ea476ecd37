"""How batches look, and how a command about one ends. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tollhouse.cli.output import Column, Item, Record, Report, field
from tollhouse.kernel.clock import iso_utc_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPLETED: Final = "completed"
ENDED: Final = frozenset((COMPLETED, "failed", "expired", "cancelled"))
"""Statuses that nothing follows."""
SOME_FAILED: Final = 3
ENDED_OTHERWISE: Final = 4
UNFINISHED: Final = 5


def batch_report(batch: Item, *, exit_code: int = 0) -> Report:
    """Return what is shown of a batch."""
    return Report(batch, Record(_summary(batch), note=_next_step(batch)), exit_code)


def exit_code_of(batch: Item) -> int:
    """Return how a command ends that waited for a batch's end."""
    if batch["status"] != COMPLETED:
        return ENDED_OTHERWISE
    return SOME_FAILED if batch["request_counts"]["failed"] else 0


def columns() -> list[Column]:
    """Return the columns of a list of batches."""
    return [
        field("id"),
        field("status"),
        field("model"),
        field("endpoint"),
        Column("completed", lambda batch: batch["request_counts"]["completed"]),
        Column("failed", lambda batch: batch["request_counts"]["failed"]),
        Column("total", lambda batch: batch["request_counts"]["total"]),
        Column("cost", _cost),
        Column("created", lambda batch: _when(batch["created_at"])),
    ]


def _summary(batch: Item) -> Item:
    usage = _usage(batch)
    return {
        **{name: batch.get(name) for name in ("id", "status", "model", "endpoint", "provider")},
        **{name: batch["request_counts"][name] for name in ("total", "completed", "failed")},
        "input tokens": usage.get("prompt_tokens"),
        "output tokens": usage.get("completion_tokens"),
        "cost": _cost(batch),
        "created": _when(batch["created_at"]),
        "expires": _when(batch["expires_at"]),
        "ended": _when(batch["finalized_at"]),
        "error": error_of(batch),
    }


def error_of(batch: Item) -> str | None:
    """Return why all of a batch failed, or why its results are withheld; None where neither is."""
    error: Mapping[str, Any] = batch.get("error") or {}
    return error.get("message")


def _next_step(batch: Item) -> str | None:
    if batch["status"] not in ENDED:
        return (
            f"Follow it:    tollhouse batch show {batch['id']} --watch\n"
            f"Its results:  tollhouse batch results {batch['id']} -o results.jsonl"
        )
    if error_of(batch) is None:
        return f"Its results:  tollhouse batch results {batch['id']} -o results.jsonl"
    return None


def _cost(batch: Item) -> float | None:
    return _usage(batch).get("cost")


def _usage(batch: Item) -> Mapping[str, Any]:
    return batch.get("usage") or {}


def _when(seconds: int | None) -> str | None:
    return None if seconds is None else iso_utc_seconds(datetime.fromtimestamp(seconds, UTC))
