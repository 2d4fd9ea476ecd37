"""The settings of what is kept for callers: batches, their files, and secrets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tollhouse.settings.fields import ApiKey, Filled, HookUrl, Listed, Lowered, Seconds, Whole
from tollhouse.settings.section import Section


class BatchSettings(Section):
    """How large batches may be, and how they are run."""

    body_limit_bytes: Whole = Field(
        default=200_000_000, ge=1024, description="Largest batch that can be submitted, in bytes."
    )
    item_limit_bytes: Whole | None = Field(
        default=None,
        ge=1024,
        description="Largest body of one request of a batch, in bytes; server.body_limit_bytes "
        "if not given.",
    )
    max_items: Whole = Field(default=50_000, ge=1, description="Most requests in one batch.")
    window_hours: Whole = Field(
        default=24,
        ge=1,
        le=24 * 365,
        description="How long a batch may run, in hours. Requests that have not begun by then "
        "are not run.",
    )
    retention_days: Whole = Field(
        default=30,
        ge=1,
        le=3650,
        description="How many days after its submission a batch's requests and results are kept.",
    )
    submits_per_hour: Whole = Field(
        default=500, ge=1, description="Batches that one account may submit in an hour."
    )
    max_open: Whole = Field(
        default=100, ge=1, description="How many unfinished batches one account may have."
    )
    assumed_output_tokens: Whole = Field(
        default=1_000,
        ge=0,
        description="Output tokens that a batch's estimate assumes for a request without "
        "`max_tokens`.",
    )
    requests_per_provider: Whole = Field(
        default=64,
        ge=1,
        description="Most batch requests that run at once at one provider for one model, all "
        "accounts together. The number begins at 8, grows with each answer and halves with each "
        "429; while live requests run, a quarter of it is used.",
    )
    chunks_at_once: Whole = Field(
        default=4,
        ge=1,
        description="How many chunks (up to 500 requests of one batch) a process works on at "
        "once. An account none of whose chunks for a model is running gets one more.",
    )
    part_seconds: Seconds = Field(
        default=2.0,
        description="How often finished results are stored. Those that were not stored yet when "
        "the process is killed are run again.",
    )
    lease_seconds: Seconds = Field(
        default=30.0,
        description="After how many seconds without a sign of life a worker loses its chunk to "
        "another worker.",
    )
    round_seconds: Seconds = Field(
        default=1.0,
        description="How often workers look for work of which no notification reached them.",
    )


class BlobSettings(Section):
    """Where the requests and results of batches are stored: below the data folder, or in S3."""

    bucket: Filled | None = Field(
        default=None,
        description="Bucket of an S3-compatible store. If not given, files in the data folder "
        "are used.",
    )
    prefix: Filled | None = Field(
        default=None, description="Text with which every key in the bucket begins."
    )
    endpoint: HookUrl | None = Field(
        default=None, description="Address of the store; Amazon's if not given."
    )
    region: Filled | None = Field(
        default=None,
        description="Region of the bucket; AWS_REGION if not given, or else us-east-1.",
    )
    access_key_id: Filled | None = Field(
        default=None,
        description="Access key id for the store; if not given, AWS_ACCESS_KEY_ID or the "
        "machine's role is used.",
    )
    secret_access_key: ApiKey | None = Field(
        default=None, description="The secret that belongs to blobs.access_key_id. Never shown."
    )


class VaultSettings(Section):
    """Where the keys are that secrets are sealed with, and what old secrets may do."""

    keys: Lowered[Literal["local", "settings", "command"]] = Field(
        default="local",
        description="Where the key-encryption key is: `local` means a file in the data folder, "
        "`settings` means `vault.key`, `command` means the program `vault.command`.",
    )
    key: ApiKey | None = Field(
        default=None,
        description="For `vault.keys: settings`: the key-encryption key, 32 bytes in base64. "
        "Never shown.",
    )
    previous_keys: Listed[ApiKey] = Field(
        default=(),
        description="Earlier key-encryption keys, which can still open what was sealed with "
        "them. Never shown.",
    )
    command: Listed[Filled] = Field(
        default=(),
        description="For `vault.keys: command`: the program, with its arguments, that wraps and "
        "unwraps data keys.",
    )
    command_seconds: Seconds = Field(
        default=5.0, description="How long that program may take for one key."
    )
    release_unbound: bool = Field(
        default=False,
        description="Whether imported secrets that name no hosts may be sent to every host.",
    )
