"""Pages of long lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list is wanted: `offset` rows are skipped, at most `limit` returned."""

    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list, and how long the whole list is."""

    items: tuple[T, ...]
    total: int
