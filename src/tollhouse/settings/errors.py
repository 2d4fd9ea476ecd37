"""How the settings say that they cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConfigError(StartError):
    """The configuration is wrong; every problem is a line of the text.

    No line holds a value that was given for a setting.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        """Name the problems, at least one; each line says where it is and what to do."""
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))
