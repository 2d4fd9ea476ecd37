"""What tools work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tollhouse.sandbox.agent.permits import Permits
    from tollhouse.sandbox.agent.tools.servers import Servers


@dataclass(frozen=True, slots=True)
class Work:
    """Of one run, or of a part of it."""

    workspace: Path
    environment: Mapping[str, str] = field(repr=False)
    """Of programs that are started."""
    permits: Permits
    servers: Servers
    """Of MCP; they outlive the run."""
    rejected: set[str] = field(default_factory=set[str])
    """Calls that a verdict of before has rejected."""

    def path(self, name: str) -> Path:
        """Return the path of a file that the model names."""
        return self.workspace / name
