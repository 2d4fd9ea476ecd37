"""The settings of the log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tollhouse.settings.fields import Lowered, Whole
from tollhouse.settings.section import Section


class LoggingSettings(Section):
    """What is logged, and how it looks."""

    level: Lowered[Literal["debug", "info", "warning", "error"]] = Field(
        default="info", description="The least severe level that is logged."
    )
    format: Lowered[Literal["json", "console", "auto"]] = Field(
        default="auto",
        description="`json` writes one JSON object a line, `console` text for people; `auto` is "
        "`console` on a terminal and `json` otherwise.",
    )
    file_bytes: Whole = Field(
        default=52_428_800,
        ge=0,
        description="How many bytes of the log `logs/server.log` in the data folder and its older "
        "files keep together, for `tollhouse logs`. 0 writes no file.",
    )
