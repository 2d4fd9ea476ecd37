"""The settings of interns: where their sandboxes come from, and what one may use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tollhouse.settings.fields import Lowered, Seconds, Whole
from tollhouse.settings.section import Section

_GIB = 1_073_741_824


class InternSettings(Section):
    """Interns: what runs their sandboxes, what each may use, how long it may take."""

    runtime: Lowered[Literal["bubblewrap", "process"]] = Field(
        default="bubblewrap",
        description="What runs sandboxes. `process` isolates nothing: an intern may do on this "
        "machine whatever the server may. For development alone.",
    )
    max_per_creator: Whole = Field(
        default=100, ge=1, description="Interns that one user may have in a workspace."
    )
    chats_per_minute: Whole = Field(
        default=60,
        ge=1,
        description="Prompts and answers that one account may send to interns in a minute.",
    )
    first_user: Whole = Field(
        default=1_900_000_000,
        ge=1_000,
        le=2_147_000_000,
        description="Where the server runs as root: the number of the user that the first sandbox "
        "runs as. Each further one takes the next number; nobody else may have them.",
    )
    memory_bytes: Whole = Field(
        default=2 * _GIB, ge=134_217_728, description="Memory of one sandbox."
    )
    processes: Whole = Field(
        default=512, ge=32, description="Processes and threads of one sandbox."
    )
    cpu_percent: Whole = Field(
        default=200, ge=1, le=100_000, description="Time of one sandbox, in percent of a core's."
    )
    disk_bytes: Whole = Field(
        default=10 * _GIB, ge=1_048_576, description="Files in one workspace, in bytes."
    )
    files: Whole = Field(
        default=1_000_000, ge=1_000, le=2_000_000, description="Files and folders in one workspace."
    )
    open_files: Whole = Field(
        default=4_096, ge=64, description="Open files of one process in a sandbox."
    )
    boot_seconds: Seconds = Field(
        default=60.0,
        description="How long an intern may take until it runs; counted anew while its files are "
        "read.",
    )
    boots_at_once: Whole = Field(
        default=4,
        ge=1,
        description="Interns that boot at a time; the others wait, which does not count.",
    )
    suspend_seconds: Seconds = Field(
        default=120.0,
        description="How long it may take until a stopped intern's files are safe; counted anew "
        "while they are read.",
    )
    destroy_seconds: Seconds = Field(
        default=600.0,
        description="How long its removal may take; counted anew while its archive is made.",
    )
    stop_seconds: Seconds = Field(
        default=5.0, description="How long the programs in a sandbox have before they are killed."
    )
    lease_seconds: Seconds = Field(
        default=30.0,
        description="After how long without a sign of life another server may act on an intern.",
    )
    away_seconds: Seconds = Field(
        default=120.0,
        description="After how long without a sign of life from a machine its interns have failed.",
    )
    round_seconds: Seconds = Field(
        default=2.0, description="The pause before the server looks for what nobody told it of."
    )
