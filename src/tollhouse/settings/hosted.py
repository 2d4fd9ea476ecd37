"""The settings of interns: where their sandboxes come from, and what one may use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tollhouse.settings.fields import InternUrl, Lowered, Seconds, Whole
from tollhouse.settings.section import Section

_GIB = 1_073_741_824


class InternSettings(Section):
    """Interns: what runs their sandboxes, what each may use, how long it may take."""

    runtime: Lowered[Literal["bubblewrap", "process"]] = Field(
        default="bubblewrap",
        description="What runs sandboxes. `process` isolates nothing: an intern may then do on "
        "this machine whatever the server may do. Use it only for development.",
    )
    public_url: InternUrl | None = Field(
        default=None,
        description="Address of each intern's daemon, with `{intern}` for the intern's id as its "
        "first label, such as `https://{intern}.interns.example.com`; it has to lead to the "
        "gateway. Without it, daemons are reached at the gateway's own address.",
    )
    max_per_creator: Whole = Field(
        default=100, ge=1, description="Interns that one user may have in a workspace."
    )
    chats_per_minute: Whole = Field(
        default=60,
        ge=1,
        description="Prompts and answers to questions that one account may send to its interns "
        "in a minute.",
    )
    first_user: Whole = Field(
        default=1_900_000_000,
        ge=1_000,
        le=2_147_000_000,
        description="If the server runs as root: the number of the user that the first sandbox "
        "runs as. Each further sandbox takes the next number; no other user may have these "
        "numbers.",
    )
    memory_bytes: Whole = Field(
        default=2 * _GIB, ge=134_217_728, description="Memory of one sandbox, in bytes."
    )
    processes: Whole = Field(
        default=512, ge=32, description="Processes and threads of one sandbox."
    )
    cpu_percent: Whole = Field(
        default=200,
        ge=1,
        le=100_000,
        description="CPU time of one sandbox, in percent of one core: 200 is two cores.",
    )
    disk_bytes: Whole = Field(
        default=10 * _GIB, ge=1_048_576, description="Size of one workspace, in bytes."
    )
    files: Whole = Field(
        default=1_000_000,
        ge=1_000,
        le=2_000_000,
        description="How many files and folders one workspace may have.",
    )
    open_files: Whole = Field(
        default=4_096, ge=64, description="How many files one process in a sandbox may have open."
    )
    boot_seconds: Seconds = Field(
        default=60.0,
        description="How long an intern may take to start. The time starts again while its files "
        "are being read.",
    )
    boots_at_once: Whole = Field(
        default=4,
        ge=1,
        description="How many interns start at the same time. Others wait; their waiting does "
        "not count as start time.",
    )
    suspend_seconds: Seconds = Field(
        default=120.0,
        description="How long it may take to store the files of an intern that is suspended. The "
        "time starts again while they are being read.",
    )
    destroy_seconds: Seconds = Field(
        default=600.0,
        description="How long deleting an intern may take. The time starts again while its "
        "archive is being written.",
    )
    stop_seconds: Seconds = Field(
        default=5.0,
        description="How long the programs in a sandbox have to end by themselves before they "
        "are killed.",
    )
    lease_seconds: Seconds = Field(
        default=30.0,
        description="After how many seconds without a sign of life from the server that manages "
        "an intern another server may take over.",
    )
    away_seconds: Seconds = Field(
        default=120.0,
        description="After how many seconds without a sign of life from a machine its interns "
        "get the status failed.",
    )
    round_seconds: Seconds = Field(
        default=2.0,
        description="How often the server looks for work of which no notification reached it.",
    )
