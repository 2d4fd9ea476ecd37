"""Baseline: the schema of the first release, whole.

Revision ID: r0001
Revises: nothing

Its columns stand in the order in which they came to be, so that it makes what the migrations before
it made, and a database at the last of those only changes its revision.
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0001"
down_revision = None

_STATUSES = (
    "('validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired', "
    "'cancelling', 'cancelled')"
)
_INTERN_STATES = (
    ("awaiting_chat_install", "idle"),
    ("queued", "idle"),
    ("queued", "running"),
    ("provisioning", "running"),
    ("running", "running"),
    ("running", "stopped"),
    ("failed", "idle"),
    ("stopped", "idle"),
    ("destroying", "absent"),
    ("destroy_failed", "idle"),
)


def upgrade() -> None:
    """Make all tables."""
    _accounts()
    _workspaces()
    _users()
    _api_keys()
    _policies_and_limits()
    _postings()
    _generations()
    _totals()
    _reservations()
    _batches()
    _batch_chunks()
    _batch_files()
    _audit()
    _vaults()
    _vault_secrets()
    _vault_subjects()
    _interns()


def _accounts() -> None:
    op.create_table(
        "accounts",
        *c.texts("id name"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at"),
        sa.Column("type", c.text(), nullable=False, server_default="prepaid"),
        c.switch("free_limits_exempt"),
        c.switch("intern_programme"),
        c.switch("vault_writes", on=True),
        c.check("accounts", "type", "type IN ('prepaid', 'enterprise', 'subscription', 'invoice')"),
        c.primary("accounts", "id"),
    )


def _workspaces() -> None:
    op.create_table(
        "workspaces",
        *c.texts("id account_id"),
        sa.Column("is_default", sa.Boolean, nullable=False),
        *c.texts("name slug"),
        *c.optional_texts("description"),
        sa.Column("preferences", sa.JSON, nullable=False),
        *c.optional_texts("created_by"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at"),
        c.switch("intern_programme", on=True),
        c.switch("vault_writes", on=True),
        c.refers("workspaces", "account_id", "accounts.id"),
        c.primary("workspaces", "id"),
        c.unique("workspaces", "account_id slug"),
    )
    c.index_where(
        "uq_workspaces_default_of_account", "workspaces", "account_id", "is_default", unique=True
    )


def _users() -> None:
    op.create_table(
        "users",
        *c.texts("id account_id name"),
        *c.optional_texts("email"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at"),
        c.refers("users", "account_id", "accounts.id"),
        c.primary("users", "id"),
    )
    op.create_index("ix_users_account_id", "users", ["account_id"])


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        *c.texts("hash kind"),
        sa.Column("operator", sa.Boolean, nullable=False),
        *c.texts("account_id workspace_id"),
        *c.optional_texts("creator_user_id intern_id"),
        *c.texts("name label"),
        sa.Column("disabled", sa.Boolean, nullable=False),
        *c.optional_integers("expires_at"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at deleted_at"),
        *c.optional_texts("secret_hash payer_hash"),
        c.check("api_keys", "kind", "kind IN ('api', 'management', 'intern')"),
        c.check("api_keys", "intern", "(kind = 'intern') = (intern_id IS NOT NULL)"),
        c.check("api_keys", "operator", "kind = 'management' OR NOT operator"),
        c.refers("api_keys", "account_id", "accounts.id"),
        c.refers("api_keys", "workspace_id", "workspaces.id"),
        c.refers("api_keys", "creator_user_id", "users.id"),
        c.primary("api_keys", "hash"),
    )
    op.create_index("ix_api_keys_workspace_created", "api_keys", ["workspace_id", "created_at"])
    op.create_index("uq_api_keys_secret_hash", "api_keys", ["secret_hash"], unique=True)
    op.create_index("ix_api_keys_intern", "api_keys", ["intern_id"])


def _policies_and_limits() -> None:
    op.create_table(
        "access_policies",
        *c.texts("scope owner_id"),
        sa.Column("policy", sa.JSON, nullable=False),
        *c.integers("updated_at"),
        c.check("access_policies", "scope", "scope IN ('account', 'workspace', 'key')"),
        c.primary("access_policies", "scope owner_id"),
    )
    op.create_table(
        "limits",
        *c.texts("scope owner_id"),
        *c.optional_integers("limit_nano"),
        *c.optional_texts("reset_interval"),
        sa.Column("include_byok", sa.Boolean, nullable=False),
        *c.integers("updated_at"),
        c.check("limits", "scope", "scope IN ('key', 'member', 'workspace')"),
        c.check("limits", "limit", "limit_nano >= 0"),
        c.check("limits", "reset_interval", "reset_interval IN ('daily', 'weekly', 'monthly')"),
        c.primary("limits", "scope owner_id"),
    )


def _postings() -> None:
    kinds = "kind IN ('purchase', 'grant', 'adjustment', 'refund', 'usage')"
    op.create_table(
        "postings",
        *c.texts("id account_id kind source destination"),
        *c.integers("amount_nano"),
        *c.optional_texts("generation_id idempotency_key note"),
        *c.integers("created_at"),
        c.check("postings", "kind", kinds),
        c.check("postings", "amount", "amount_nano > 0"),
        c.check("postings", "two_sides", "source <> destination"),
        c.refers("postings", "account_id", "accounts.id"),
        c.primary("postings", "id"),
        c.unique("postings", "account_id idempotency_key"),
    )
    op.create_index("ix_postings_account_created", "postings", ["account_id", "created_at"])
    c.index_where(
        "ix_postings_adjustment_of_generation", "postings", "generation_id", "kind = 'adjustment'"
    )
    c.index_where(
        "uq_postings_usage_of_generation",
        "postings",
        "generation_id",
        "kind = 'usage'",
        unique=True,
    )


def _generations() -> None:
    op.create_table(
        "generations",
        *c.texts("id account_id workspace_id key_hash api_type model"),
        *c.optional_texts("provider provider_model upstream_id"),
        sa.Column("is_byok", sa.Boolean, nullable=False),
        sa.Column("streamed", sa.Boolean, nullable=False),
        sa.Column("cancelled", sa.Boolean, nullable=False),
        *c.optional_texts("finish_reason native_finish_reason"),
        *c.texts("cost_state"),
        *c.integers("cost_nano"),
        *c.optional_integers("provider_cost_nano"),
        *c.integers(
            "input_tokens cache_read_tokens cache_write_tokens cache_write_1h_tokens "
            "output_tokens reasoning_tokens"
        ),
        *c.optional_integers("latency_ms generation_ms"),
        sa.Column("attempts", sa.JSON, nullable=False),
        *c.optional_texts("http_referer app_title user_agent external_user session_id"),
        *c.integers("created_at"),
        *c.optional_texts("categories trace metadata"),
        *c.optional_integers("images"),
        c.switch("free_limited"),
        *c.optional_texts("payer_hash"),
        c.check("generations", "cost_state", "cost_state IN ('exact', 'estimated', 'unknown')"),
        c.check("generations", "cost", "cost_nano >= 0"),
        c.primary("generations", "id"),
    )
    op.create_index("ix_generations_account_created", "generations", ["account_id", "created_at"])
    c.index_where(
        "ix_generations_unknown_cost", "generations", "created_at", "cost_state = 'unknown'"
    )
    c.index_where("ix_generations_payer", "generations", "payer_hash", "payer_hash IS NOT NULL")


def _totals() -> None:
    op.create_table(
        "account_totals",
        *c.texts("account_id"),
        *c.integers("purchased_nano granted_nano used_nano"),
        *c.counters("refunded_nano adjusted_nano"),
        c.refers("account_totals", "account_id", "accounts.id"),
        c.primary("account_totals", "account_id"),
    )
    op.create_table(
        "account_days",
        *c.texts("account_id day"),
        *c.integers("free_requests"),
        c.primary("account_days", "account_id day"),
    )
    op.create_table(
        "key_totals",
        *c.texts("key_hash"),
        *c.integers("usage_nano byok_usage_nano last_used_at"),
        c.primary("key_totals", "key_hash"),
    )
    op.create_table(
        "key_days",
        *c.texts("key_hash day"),
        *c.integers("usage_nano byok_usage_nano requests"),
        c.primary("key_days", "key_hash day"),
    )
    keys = "account_id day key_hash model provider workspace_id"
    op.create_table(
        "usage_days",
        *c.texts(keys),
        *c.integers("requests prompt_tokens completion_tokens reasoning_tokens cached_tokens"),
        *c.integers("usage_nano byok_usage_nano"),
        c.primary("usage_days", keys),
    )


def _reservations() -> None:
    op.create_table(
        "reservations",
        *c.texts("id account_id key_hash"),
        *c.integers("amount_nano created_at"),
        *c.optional_texts("payer_hash"),
        c.check("reservations", "amount", "amount_nano >= 0"),
        c.refers("reservations", "account_id", "accounts.id"),
        c.primary("reservations", "id"),
    )
    for column in ("account_id", "key_hash", "payer_hash"):
        op.create_index(f"ix_reservations_{column}", "reservations", [column])


def _batches() -> None:
    op.create_table(
        "batches",
        *c.texts("id account_id workspace_id key_hash endpoint model"),
        sa.Column("attribution", sa.JSON, nullable=False),
        *c.texts("digest"),
        *c.optional_texts("idempotency_key"),
        *c.texts("status"),
        *c.optional_texts("ending error provider"),
        *c.integers("total"),
        *c.counters(
            "completed failed unrun input_tokens cache_read_tokens cache_write_tokens "
            "cache_write_1h_tokens output_tokens reasoning_tokens cost_nano"
        ),
        c.switch("released"),
        *c.integers("created_at expires_at"),
        *c.optional_integers("finalized_at deleted_at purged_at"),
        *c.optional_texts("payer_hash"),
        sa.Column("wish", sa.JSON, nullable=False, server_default="{}"),
        *c.optional_integers("compress_at"),
        c.refers("batches", "account_id", "accounts.id"),
        c.primary("batches", "id"),
        c.unique("batches", "workspace_id idempotency_key"),
        c.check("batches", "status", f"status IN {_STATUSES}"),
        c.check("batches", "counts", "completed + failed <= total AND unrun <= failed"),
        c.check(
            "batches",
            "finalized",
            "(finalized_at IS NOT NULL) = "
            "(status IN ('completed', 'failed', 'expired', 'cancelled'))",
        ),
    )
    op.create_index("ix_batches_account_created", "batches", ["account_id", "created_at"])
    op.create_index("ix_batches_workspace_created", "batches", ["workspace_id", "created_at", "id"])
    c.index_where("ix_batches_open", "batches", "expires_at", "finalized_at IS NULL")
    c.index_where("ix_batches_kept", "batches", "created_at", "purged_at IS NULL")


def _batch_chunks() -> None:
    op.create_table(
        "batch_chunks",
        *c.texts("batch_id"),
        *c.integers("number first_item lines"),
        *c.texts("state"),
        *c.integers("ready_at"),
        *c.optional_integers("lease_until"),
        *c.optional_texts("token"),
        *c.counters("attempts"),
        *c.optional_integers("suspect"),
        sa.Column("failures", sa.JSON),
        c.refers("batch_chunks", "batch_id", "batches.id"),
        c.primary("batch_chunks", "batch_id number"),
        c.check("batch_chunks", "state", "state IN ('waiting', 'running', 'done')"),
        c.check(
            "batch_chunks",
            "lease",
            "(state = 'running') = (token IS NOT NULL AND lease_until IS NOT NULL)",
        ),
    )
    c.index_where("ix_batch_chunks_open", "batch_chunks", "ready_at", "state != 'done'")


def _batch_files() -> None:
    op.create_table(
        "batch_parts",
        *c.texts("batch_id blob"),
        *c.integers("chunk"),
        sa.Column("numbers", sa.JSON, nullable=False),
        c.refers("batch_parts", "batch_id", "batches.id"),
        c.primary("batch_parts", "batch_id blob"),
    )
    op.create_table(
        "batch_uploads",
        *c.texts("batch_id"),
        *c.integers("started_at"),
        c.switch("given_up"),
        c.primary("batch_uploads", "batch_id"),
    )


def _audit() -> None:
    op.create_table(
        "audit_rows",
        *c.texts("chain"),
        *c.integers("seq at"),
        *c.texts("action actor"),
        *c.optional_texts("workspace_id intern_id vault_id name"),
        *c.optional_integers("version"),
        sa.Column("hosts", sa.JSON),
        *c.texts("verdict hash"),
        *c.optional_texts("object_id"),
        sa.Column("changes", sa.JSON),
        c.primary("audit_rows", "chain seq"),
    )
    op.create_table(
        "audit_heads",
        *c.texts("chain"),
        *c.integers("seq"),
        *c.texts("hash"),
        c.primary("audit_heads", "chain"),
    )


def _vaults() -> None:
    op.create_table(
        "vaults",
        *c.texts("id account_id workspace_id kind kek_id"),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        *c.counters("changes"),
        *c.integers("created_at"),
        c.refers("vaults", "account_id", "accounts.id"),
        c.refers("vaults", "workspace_id", "workspaces.id"),
        c.primary("vaults", "id"),
        c.check("vaults", "kind", "kind IN ('workspace', 'intern')"),
    )
    op.create_index("ix_vaults_kek_id", "vaults", ["kek_id"])
    op.create_index("ix_vaults_workspace_id", "vaults", ["workspace_id"])
    c.index_where(
        "uq_vaults_of_workspace", "vaults", "workspace_id", "kind = 'workspace'", unique=True
    )


def _vault_secrets() -> None:
    op.create_table(
        "vault_secrets",
        *c.texts("vault_id name"),
        *c.integers("version"),
        sa.Column("hosts", sa.Text),
        *c.optional_texts("fingerprint"),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        *c.integers("created_at updated_at"),
        c.refers("vault_secrets", "vault_id", "vaults.id"),
        c.primary("vault_secrets", "vault_id name"),
        c.check("vault_secrets", "legacy", "(hosts IS NULL) = (fingerprint IS NULL)"),
        c.check("vault_secrets", "version", "version >= 1"),
    )


def _vault_subjects() -> None:
    op.create_table(
        "vault_subjects",
        *c.texts("intern_id account_id workspace_id own_vault_id"),
        *c.optional_texts("attached_vault_id"),
        *c.integers("created_at"),
        c.refers("vault_subjects", "account_id", "accounts.id"),
        c.refers("vault_subjects", "workspace_id", "workspaces.id"),
        c.refers("vault_subjects", "own_vault_id", "vaults.id"),
        c.primary("vault_subjects", "intern_id"),
        c.unique("vault_subjects", "own_vault_id"),
        c.check(
            "vault_subjects",
            "two",
            "attached_vault_id IS NULL OR attached_vault_id != own_vault_id",
        ),
    )
    for column in ("workspace_id", "attached_vault_id"):
        op.create_index(f"ix_vault_subjects_{column}", "vault_subjects", [column])


def _interns() -> None:
    is_state = " OR ".join(
        f"(status = '{status}' AND desired = '{want}')" for status, want in _INTERN_STATES
    )
    op.create_table(
        "interns",
        *c.texts("id account_id workspace_id creator name"),
        *c.optional_texts("description instructions model"),
        *c.texts("status desired"),
        *c.optional_integers("step"),
        *c.optional_texts("last_failure_message vault_id attached_vault_id hostname"),
        *c.integers("number"),
        *c.texts("idempotency_key request_digest"),
        c.switch("loss_acknowledged"),
        *c.optional_texts("workspace_digest"),
        *c.counters("restarts"),
        *c.optional_texts("run_model run_key_hash"),
        *c.optional_integers("run_port"),
        *c.optional_texts("run_token_hash"),
        sa.Column("run_sealed_token", sa.LargeBinary),
        *c.optional_texts("machine"),
        *c.counters("lease_token"),
        *c.optional_integers("lease_until"),
        *c.integers("created_at updated_at"),
        *c.optional_texts("payer_hash"),
        c.refers("interns", "account_id", "accounts.id"),
        c.refers("interns", "workspace_id", "workspaces.id"),
        c.primary("interns", "id"),
        c.unique("interns", "number"),
        c.unique("interns", "workspace_id creator name"),
        c.unique("interns", "workspace_id creator idempotency_key"),
        c.check("interns", "state", is_state),
        c.check("interns", "step", "step IS NULL OR status = 'provisioning'"),
        c.check(
            "interns",
            "run",
            "(run_key_hash IS NULL) = (run_model IS NULL) "
            "AND (run_key_hash IS NULL) = (run_token_hash IS NULL) "
            "AND (run_key_hash IS NULL) = (run_sealed_token IS NULL) "
            "AND (run_port IS NULL OR run_key_hash IS NOT NULL)",
        ),
    )
    op.create_index("ix_interns_workspace_created", "interns", ["workspace_id", "created_at", "id"])
    op.create_table(
        "intern_machines",
        *c.texts("machine"),
        *c.integers("present_until"),
        c.primary("intern_machines", "machine"),
    )
