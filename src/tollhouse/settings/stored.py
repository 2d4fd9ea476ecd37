"""The settings of what is kept for callers: batches, their files, and secrets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tollhouse.settings.fields import ApiKey, Filled, HookUrl, Listed, Lowered, Seconds, Whole
from tollhouse.settings.section import Section


class BatchSettings(Section):
    """How large batches may be, and how they are run."""

    body_limit_bytes: Whole = Field(
        default=200_000_000, ge=1024, description="Largest batch as it is submitted, in bytes."
    )
    item_limit_bytes: Whole | None = Field(
        default=None,
        ge=1024,
        description="Largest body of one request of a batch, in bytes. Without it that of other "
        "requests, server.body_limit_bytes.",
    )
    max_items: Whole = Field(default=50_000, ge=1, description="Most requests of a batch.")
    window_hours: Whole = Field(
        default=24,
        ge=1,
        le=24 * 365,
        description="How long a batch may run. What is not begun then is not run.",
    )
    retention_days: Whole = Field(
        default=30,
        ge=1,
        le=3650,
        description="How long a batch's requests and results are kept, from its submission.",
    )
    submits_per_hour: Whole = Field(
        default=500, ge=1, description="Batches that one account may submit in an hour."
    )
    max_open: Whole = Field(
        default=100, ge=1, description="Batches of one account that have not ended."
    )
    assumed_output_tokens: Whole = Field(
        default=1_000,
        ge=0,
        description="What a request without a limit of its output counts in a batch's estimate.",
    )
    requests_per_provider: Whole = Field(
        default=64,
        ge=1,
        description="Requests of batches under way at one provider for one model, at most. It "
        "begins with 8, grows with answers, and halves with each 429; while other requests run it "
        "is a quarter. Accounts share it.",
    )
    chunks_at_once: Whole = Field(
        default=4,
        ge=1,
        description="Parts of batches, of some 500 requests, that one process works on at once. "
        "An account whose model has none gets one beyond it.",
    )
    part_seconds: Seconds = Field(
        default=2.0,
        description="How long a result waits for others before it is stored with them. What a "
        "kill finds waiting is run again.",
    )
    lease_seconds: Seconds = Field(
        default=30.0,
        description="After how long without a sign of life a worker's part goes to another one.",
    )
    round_seconds: Seconds = Field(
        default=1.0, description="The pause before workers look for what nobody told them of."
    )


class BlobSettings(Section):
    """Where the requests and results of batches are stored: below the data folder, or in S3."""

    bucket: Filled | None = Field(
        default=None,
        description="Bucket of an S3-compatible store. Without one, files in the data folder.",
    )
    prefix: Filled | None = Field(
        default=None, description="What every key in the bucket begins with."
    )
    endpoint: HookUrl | None = Field(
        default=None, description="The store's address; Amazon's unless given."
    )
    region: Filled | None = Field(
        default=None, description="The bucket's region; AWS_REGION unless given, or us-east-1."
    )
    access_key_id: Filled | None = Field(
        default=None,
        description="Whom the store lets in; what AWS_ACCESS_KEY_ID and the machine's role say "
        "unless given.",
    )
    secret_access_key: ApiKey | None = Field(
        default=None, description="The secret that belongs to it. Never shown."
    )


class VaultSettings(Section):
    """Where the keys are that secrets are sealed with, and what old secrets may do."""

    keys: Lowered[Literal["local", "settings", "command"]] = Field(
        default="local",
        description="Where the key-encryption key is: `local` is a file in the data folder, "
        "`settings` is `vault.key`, `command` is behind the program `vault.command`.",
    )
    key: ApiKey | None = Field(
        default=None,
        description="With `settings`: the key-encryption key, 32 bytes in base64. Never shown.",
    )
    previous_keys: Listed[ApiKey] = Field(
        default=(), description="Earlier ones that still open what they sealed. Never shown."
    )
    command: Listed[Filled] = Field(
        default=(),
        description="With `command`: a program and its arguments that wraps and unwraps data keys.",
    )
    command_seconds: Seconds = Field(default=5.0, description="How long that program may take.")
    release_unbound: bool = Field(
        default=False,
        description="Whether imported secrets that are bound to no host go to any host.",
    )
