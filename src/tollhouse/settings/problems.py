"""One thing that is wrong with the settings: where, and what."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

Location = tuple[str | int, ...]
"""The way to a setting from the root: names of keys, positions in lists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where. Never holds a value that was given for a setting."""

    location: Location
    message: str
    """Reads on from the path: "must be a number"."""

    @property
    def path(self) -> str:
        """The location as a person writes it."""
        return dotted(self.location)


def dotted(location: Location) -> str:
    """Return a location as a person writes it, for example `models[0].endpoints[1].pricing`."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def nearest(name: str, valid: Collection[str]) -> str | None:
    """Return the most similar of the valid names; None only where there is no valid name."""
    found = difflib.get_close_matches(name, sorted(valid), n=1, cutoff=0.0)
    return found[0] if found else None
