BEGIN TRANSACTION;
CREATE TABLE access_policies (
	scope TEXT NOT NULL, 
	owner_id TEXT NOT NULL, 
	policy JSON NOT NULL, 
	updated_at BIGINT NOT NULL, 
	CONSTRAINT pk_access_policies PRIMARY KEY (scope, owner_id), 
	CONSTRAINT ck_access_policies_scope CHECK (scope IN ('account', 'workspace', 'key'))
);
CREATE TABLE account_days (
	account_id TEXT NOT NULL, 
	day TEXT NOT NULL, 
	free_requests BIGINT NOT NULL, byok_requests BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_account_days PRIMARY KEY (account_id, day)
);
CREATE TABLE account_totals (
	account_id TEXT NOT NULL, 
	purchased_nano BIGINT NOT NULL, 
	granted_nano BIGINT NOT NULL, 
	used_nano BIGINT NOT NULL, 
	refunded_nano BIGINT DEFAULT 0 NOT NULL, 
	adjusted_nano BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_account_totals PRIMARY KEY (account_id), 
	CONSTRAINT fk_account_totals_account_id FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE TABLE accounts (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT, 
	type TEXT DEFAULT 'prepaid' NOT NULL, 
	free_limits_exempt BOOLEAN DEFAULT 0 NOT NULL, 
	intern_programme BOOLEAN DEFAULT 0 NOT NULL, 
	vault_writes BOOLEAN DEFAULT 1 NOT NULL, 
	CONSTRAINT pk_accounts PRIMARY KEY (id), 
	CONSTRAINT ck_accounts_type CHECK (type IN ('prepaid', 'enterprise', 'subscription', 'invoice'))
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('r0010');
CREATE TABLE api_keys (
	hash TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	operator BOOLEAN NOT NULL, 
	account_id TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	creator_user_id TEXT, 
	intern_id TEXT, 
	name TEXT NOT NULL, 
	label TEXT NOT NULL, 
	disabled BOOLEAN NOT NULL, 
	expires_at BIGINT, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT, 
	deleted_at BIGINT, 
	secret_hash TEXT, 
	payer_hash TEXT, 
	CONSTRAINT pk_api_keys PRIMARY KEY (hash), 
	CONSTRAINT ck_api_keys_kind CHECK (kind IN ('api', 'management', 'intern')), 
	CONSTRAINT ck_api_keys_intern CHECK ((kind = 'intern') = (intern_id IS NOT NULL)), 
	CONSTRAINT ck_api_keys_operator CHECK (kind = 'management' OR NOT operator), 
	CONSTRAINT fk_api_keys_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT fk_api_keys_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id), 
	CONSTRAINT fk_api_keys_creator_user_id FOREIGN KEY(creator_user_id) REFERENCES users (id)
);
CREATE TABLE audit_heads (
	chain TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	CONSTRAINT pk_audit_heads PRIMARY KEY (chain)
);
CREATE TABLE audit_rows (
	chain TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	action TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	workspace_id TEXT, 
	intern_id TEXT, 
	vault_id TEXT, 
	name TEXT, 
	version BIGINT, 
	hosts JSON, 
	verdict TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	object_id TEXT, 
	changes JSON, 
	CONSTRAINT pk_audit_rows PRIMARY KEY (chain, seq)
);
CREATE TABLE batch_chunks (
	batch_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	first_item BIGINT NOT NULL, 
	lines BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	ready_at BIGINT NOT NULL, 
	lease_until BIGINT, 
	token TEXT, 
	attempts BIGINT DEFAULT 0 NOT NULL, 
	suspect BIGINT, 
	failures JSON, 
	CONSTRAINT pk_batch_chunks PRIMARY KEY (batch_id, number), 
	CONSTRAINT fk_batch_chunks_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id), 
	CONSTRAINT ck_batch_chunks_state CHECK (state IN ('waiting', 'running', 'done')), 
	CONSTRAINT ck_batch_chunks_lease CHECK ((state = 'running') = (token IS NOT NULL AND lease_until IS NOT NULL))
);
CREATE TABLE batch_parts (
	batch_id TEXT NOT NULL, 
	blob TEXT NOT NULL, 
	chunk BIGINT NOT NULL, 
	numbers JSON NOT NULL, 
	CONSTRAINT pk_batch_parts PRIMARY KEY (batch_id, blob), 
	CONSTRAINT fk_batch_parts_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id)
);
CREATE TABLE batch_uploads (
	batch_id TEXT NOT NULL, 
	started_at BIGINT NOT NULL, 
	given_up BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_batch_uploads PRIMARY KEY (batch_id)
);
CREATE TABLE batches (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	key_hash TEXT NOT NULL, 
	endpoint TEXT NOT NULL, 
	model TEXT NOT NULL, 
	attribution JSON NOT NULL, 
	digest TEXT NOT NULL, 
	idempotency_key TEXT, 
	status TEXT NOT NULL, 
	ending TEXT, 
	error TEXT, 
	provider TEXT, 
	total BIGINT NOT NULL, 
	completed BIGINT DEFAULT 0 NOT NULL, 
	failed BIGINT DEFAULT 0 NOT NULL, 
	unrun BIGINT DEFAULT 0 NOT NULL, 
	input_tokens BIGINT DEFAULT 0 NOT NULL, 
	cache_read_tokens BIGINT DEFAULT 0 NOT NULL, 
	cache_write_tokens BIGINT DEFAULT 0 NOT NULL, 
	cache_write_1h_tokens BIGINT DEFAULT 0 NOT NULL, 
	output_tokens BIGINT DEFAULT 0 NOT NULL, 
	reasoning_tokens BIGINT DEFAULT 0 NOT NULL, 
	cost_nano BIGINT DEFAULT 0 NOT NULL, 
	released BOOLEAN DEFAULT 0 NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	finalized_at BIGINT, 
	deleted_at BIGINT, 
	purged_at BIGINT, 
	payer_hash TEXT, 
	wish JSON DEFAULT '{}' NOT NULL, 
	compress_at BIGINT, is_byok BOOLEAN DEFAULT 0 NOT NULL, only_own_keys BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_batches PRIMARY KEY (id), 
	CONSTRAINT fk_batches_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT uq_batches_workspace_id_idempotency_key UNIQUE (workspace_id, idempotency_key), 
	CONSTRAINT ck_batches_status CHECK (status IN ('validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired', 'cancelling', 'cancelled')), 
	CONSTRAINT ck_batches_counts CHECK (completed + failed <= total AND unrun <= failed), 
	CONSTRAINT ck_batches_finalized CHECK ((finalized_at IS NOT NULL) = (status IN ('completed', 'failed', 'expired', 'cancelled')))
);
CREATE TABLE budgets (
	scope TEXT NOT NULL, 
	id TEXT NOT NULL, 
	period TEXT NOT NULL, 
	limit_nano BIGINT, 
	include_byok BOOLEAN DEFAULT 0 NOT NULL, 
	used_nano BIGINT DEFAULT 0 NOT NULL, 
	reserved_nano BIGINT DEFAULT 0 NOT NULL, 
	leased_nano BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_budgets PRIMARY KEY (scope, id, period)
);
CREATE TABLE "generations" (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	key_hash TEXT NOT NULL, 
	api_type TEXT NOT NULL, 
	model TEXT NOT NULL, 
	provider TEXT, 
	provider_model TEXT, 
	upstream_id TEXT, 
	is_byok BOOLEAN NOT NULL, 
	streamed BOOLEAN NOT NULL, 
	cancelled BOOLEAN NOT NULL, 
	finish_reason TEXT, 
	native_finish_reason TEXT, 
	cost_state TEXT NOT NULL, 
	cost_nano BIGINT NOT NULL, 
	provider_cost_nano BIGINT, 
	input_tokens BIGINT NOT NULL, 
	cache_read_tokens BIGINT NOT NULL, 
	cache_write_tokens BIGINT NOT NULL, 
	cache_write_1h_tokens BIGINT NOT NULL, 
	output_tokens BIGINT NOT NULL, 
	reasoning_tokens BIGINT NOT NULL, 
	latency_ms BIGINT, 
	generation_ms BIGINT, 
	attempts JSON NOT NULL, 
	http_referer TEXT, 
	app_title TEXT, 
	user_agent TEXT, 
	external_user TEXT, 
	session_id TEXT, 
	created_at BIGINT NOT NULL, 
	categories TEXT, 
	trace TEXT, 
	metadata TEXT, 
	images BIGINT, 
	free_limited BOOLEAN DEFAULT 0 NOT NULL, 
	payer_hash TEXT, estimate_nano BIGINT, 
	CONSTRAINT pk_generations PRIMARY KEY (id), 
	CONSTRAINT ck_generations_cost_state CHECK (cost_state IN ('exact', 'estimated', 'unknown', 'interrupted')), 
	CONSTRAINT ck_generations_cost CHECK (cost_nano >= 0)
);
CREATE TABLE holders (
	id TEXT NOT NULL, 
	booked_seq BIGINT NOT NULL, machine TEXT DEFAULT '' NOT NULL, live BOOLEAN DEFAULT 0 NOT NULL, epoch BIGINT DEFAULT 0 NOT NULL, op BIGINT DEFAULT 0 NOT NULL, started_at BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_holders PRIMARY KEY (id)
);
CREATE TABLE intern_channel_events (
	intern_id TEXT NOT NULL, 
	event_id TEXT NOT NULL, 
	seen_at BIGINT NOT NULL, 
	CONSTRAINT pk_intern_channel_events PRIMARY KEY (intern_id, event_id), 
	CONSTRAINT fk_intern_channel_events_intern_id FOREIGN KEY(intern_id) REFERENCES interns (id)
);
CREATE TABLE intern_channels (
	intern_id TEXT NOT NULL, 
	service TEXT NOT NULL, 
	settings JSON NOT NULL, 
	sealed_tokens BLOB, 
	updated_at BIGINT NOT NULL, 
	CONSTRAINT pk_intern_channels PRIMARY KEY (intern_id), 
	CONSTRAINT fk_intern_channels_intern_id FOREIGN KEY(intern_id) REFERENCES interns (id)
);
CREATE TABLE intern_machines (
	machine TEXT NOT NULL, 
	present_until BIGINT NOT NULL, 
	CONSTRAINT pk_intern_machines PRIMARY KEY (machine)
);
CREATE TABLE interns (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	creator TEXT NOT NULL, 
	name TEXT NOT NULL, 
	description TEXT, 
	instructions TEXT, 
	model TEXT, 
	status TEXT NOT NULL, 
	desired TEXT NOT NULL, 
	step BIGINT, 
	last_failure_message TEXT, 
	vault_id TEXT, 
	attached_vault_id TEXT, 
	hostname TEXT, 
	number BIGINT NOT NULL, 
	idempotency_key TEXT NOT NULL, 
	request_digest TEXT NOT NULL, 
	loss_acknowledged BOOLEAN DEFAULT 0 NOT NULL, 
	workspace_digest TEXT, 
	restarts BIGINT DEFAULT 0 NOT NULL, 
	run_model TEXT, 
	run_key_hash TEXT, 
	run_port BIGINT, 
	run_token_hash TEXT, 
	run_sealed_token BLOB, 
	machine TEXT, 
	lease_token BIGINT DEFAULT 0 NOT NULL, 
	lease_until BIGINT, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	payer_hash TEXT, 
	CONSTRAINT pk_interns PRIMARY KEY (id), 
	CONSTRAINT fk_interns_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT fk_interns_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id), 
	CONSTRAINT uq_interns_number UNIQUE (number), 
	CONSTRAINT uq_interns_workspace_id_creator_name UNIQUE (workspace_id, creator, name), 
	CONSTRAINT uq_interns_workspace_id_creator_idempotency_key UNIQUE (workspace_id, creator, idempotency_key), 
	CONSTRAINT ck_interns_state CHECK ((status = 'awaiting_chat_install' AND desired = 'idle') OR (status = 'queued' AND desired = 'idle') OR (status = 'queued' AND desired = 'running') OR (status = 'provisioning' AND desired = 'running') OR (status = 'running' AND desired = 'running') OR (status = 'running' AND desired = 'stopped') OR (status = 'failed' AND desired = 'idle') OR (status = 'stopped' AND desired = 'idle') OR (status = 'destroying' AND desired = 'absent') OR (status = 'destroy_failed' AND desired = 'idle')), 
	CONSTRAINT ck_interns_step CHECK (step IS NULL OR status = 'provisioning'), 
	CONSTRAINT ck_interns_run CHECK ((run_key_hash IS NULL) = (run_model IS NULL) AND (run_key_hash IS NULL) = (run_token_hash IS NULL) AND (run_key_hash IS NULL) = (run_sealed_token IS NULL) AND (run_port IS NULL OR run_key_hash IS NOT NULL))
);
CREATE TABLE key_days (
	key_hash TEXT NOT NULL, 
	day TEXT NOT NULL, 
	usage_nano BIGINT NOT NULL, 
	byok_usage_nano BIGINT NOT NULL, 
	requests BIGINT NOT NULL, 
	CONSTRAINT pk_key_days PRIMARY KEY (key_hash, day)
);
CREATE TABLE key_totals (
	key_hash TEXT NOT NULL, 
	usage_nano BIGINT NOT NULL, 
	byok_usage_nano BIGINT NOT NULL, 
	last_used_at BIGINT NOT NULL, 
	CONSTRAINT pk_key_totals PRIMARY KEY (key_hash)
);
CREATE TABLE leases (
	holder TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	id TEXT NOT NULL, 
	period TEXT NOT NULL, 
	granted_nano BIGINT DEFAULT 0 NOT NULL, 
	wanted_nano BIGINT DEFAULT 0 NOT NULL, 
	wanted_since BIGINT DEFAULT 0 NOT NULL, 
	wanted_until BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (holder, scope, id, period)
);
CREATE TABLE limits (
	scope TEXT NOT NULL, 
	owner_id TEXT NOT NULL, 
	limit_nano BIGINT, 
	reset_interval TEXT, 
	include_byok BOOLEAN NOT NULL, 
	updated_at BIGINT NOT NULL, 
	CONSTRAINT pk_limits PRIMARY KEY (scope, owner_id), 
	CONSTRAINT ck_limits_scope CHECK (scope IN ('key', 'member', 'workspace')), 
	CONSTRAINT ck_limits_limit CHECK (limit_nano >= 0), 
	CONSTRAINT ck_limits_reset_interval CHECK (reset_interval IN ('daily', 'weekly', 'monthly'))
);
CREATE TABLE postings (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	source TEXT NOT NULL, 
	destination TEXT NOT NULL, 
	amount_nano BIGINT NOT NULL, 
	generation_id TEXT, 
	idempotency_key TEXT, 
	note TEXT, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_postings PRIMARY KEY (id), 
	CONSTRAINT ck_postings_kind CHECK (kind IN ('purchase', 'grant', 'adjustment', 'refund', 'usage')), 
	CONSTRAINT ck_postings_amount CHECK (amount_nano > 0), 
	CONSTRAINT ck_postings_two_sides CHECK (source <> destination), 
	CONSTRAINT fk_postings_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT uq_postings_account_id_idempotency_key UNIQUE (account_id, idempotency_key)
);
CREATE TABLE provider_keys (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	vault_id TEXT NOT NULL, 
	provider TEXT NOT NULL, 
	label TEXT NOT NULL, 
	name TEXT, 
	disabled BOOLEAN NOT NULL, 
	is_fallback BOOLEAN NOT NULL, 
	is_required BOOLEAN NOT NULL, 
	is_byok_only BOOLEAN NOT NULL, 
	sort_order BIGINT NOT NULL, 
	version BIGINT NOT NULL, 
	allowed_models JSON, 
	allowed_user_ids JSON, 
	allowed_api_key_hashes JSON, 
	declared_region TEXT, 
	declared_zdr BOOLEAN, 
	sealed BLOB NOT NULL, 
	last_error TEXT, 
	last_error_at BIGINT, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT, 
	CONSTRAINT pk_provider_keys PRIMARY KEY (id), 
	CONSTRAINT fk_provider_keys_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT fk_provider_keys_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id), 
	CONSTRAINT fk_provider_keys_vault_id FOREIGN KEY(vault_id) REFERENCES vaults (id), 
	CONSTRAINT ck_provider_keys_rules CHECK (NOT (is_fallback AND is_byok_only))
);
CREATE TABLE rates (
	account_id TEXT NOT NULL, 
	model TEXT NOT NULL, 
	taken TEXT NOT NULL, 
	CONSTRAINT pk_rates PRIMARY KEY (account_id, model)
);
CREATE TABLE reservations (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	key_hash TEXT NOT NULL, 
	amount_nano BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	payer_hash TEXT, with_own_nano BIGINT DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_reservations PRIMARY KEY (id), 
	CONSTRAINT ck_reservations_amount CHECK (amount_nano >= 0), 
	CONSTRAINT fk_reservations_account_id FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE TABLE topics (
	name TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_topics PRIMARY KEY (name)
);
CREATE TABLE usage_days (
	account_id TEXT NOT NULL, 
	day TEXT NOT NULL, 
	key_hash TEXT NOT NULL, 
	model TEXT NOT NULL, 
	provider TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	requests BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	reasoning_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	usage_nano BIGINT NOT NULL, 
	byok_usage_nano BIGINT NOT NULL, 
	CONSTRAINT pk_usage_days PRIMARY KEY (account_id, day, key_hash, model, provider, workspace_id)
);
CREATE TABLE users (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	email TEXT, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT, 
	CONSTRAINT pk_users PRIMARY KEY (id), 
	CONSTRAINT fk_users_account_id FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE TABLE vault_secrets (
	vault_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	hosts TEXT, 
	fingerprint TEXT, 
	sealed BLOB NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	CONSTRAINT pk_vault_secrets PRIMARY KEY (vault_id, name), 
	CONSTRAINT fk_vault_secrets_vault_id FOREIGN KEY(vault_id) REFERENCES vaults (id), 
	CONSTRAINT ck_vault_secrets_legacy CHECK ((hosts IS NULL) = (fingerprint IS NULL)), 
	CONSTRAINT ck_vault_secrets_version CHECK (version >= 1)
);
CREATE TABLE vault_subjects (
	intern_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	own_vault_id TEXT NOT NULL, 
	attached_vault_id TEXT, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_vault_subjects PRIMARY KEY (intern_id), 
	CONSTRAINT fk_vault_subjects_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT fk_vault_subjects_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id), 
	CONSTRAINT fk_vault_subjects_own_vault_id FOREIGN KEY(own_vault_id) REFERENCES vaults (id), 
	CONSTRAINT uq_vault_subjects_own_vault_id UNIQUE (own_vault_id), 
	CONSTRAINT ck_vault_subjects_two CHECK (attached_vault_id IS NULL OR attached_vault_id != own_vault_id)
);
CREATE TABLE vaults (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	workspace_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	kek_id TEXT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	changes BIGINT DEFAULT 0 NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_vaults PRIMARY KEY (id), 
	CONSTRAINT fk_vaults_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT fk_vaults_workspace_id FOREIGN KEY(workspace_id) REFERENCES workspaces (id), 
	CONSTRAINT ck_vaults_kind CHECK (kind IN ('workspace', 'intern'))
);
CREATE TABLE workspaces (
	id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	is_default BOOLEAN NOT NULL, 
	name TEXT NOT NULL, 
	slug TEXT NOT NULL, 
	description TEXT, 
	preferences JSON NOT NULL, 
	created_by TEXT, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT, 
	intern_programme BOOLEAN DEFAULT 1 NOT NULL, 
	vault_writes BOOLEAN DEFAULT 1 NOT NULL, 
	CONSTRAINT pk_workspaces PRIMARY KEY (id), 
	CONSTRAINT fk_workspaces_account_id FOREIGN KEY(account_id) REFERENCES accounts (id), 
	CONSTRAINT uq_workspaces_account_id_slug UNIQUE (account_id, slug)
);
CREATE UNIQUE INDEX uq_workspaces_default_of_account ON workspaces (account_id) WHERE is_default;
CREATE INDEX ix_users_account_id ON users (account_id);
CREATE INDEX ix_api_keys_workspace_created ON api_keys (workspace_id, created_at);
CREATE UNIQUE INDEX uq_api_keys_secret_hash ON api_keys (secret_hash);
CREATE INDEX ix_api_keys_intern ON api_keys (intern_id);
CREATE INDEX ix_postings_account_created ON postings (account_id, created_at);
CREATE INDEX ix_postings_adjustment_of_generation ON postings (generation_id) WHERE kind = 'adjustment';
CREATE UNIQUE INDEX uq_postings_usage_of_generation ON postings (generation_id) WHERE kind = 'usage';
CREATE INDEX ix_reservations_account_id ON reservations (account_id);
CREATE INDEX ix_reservations_key_hash ON reservations (key_hash);
CREATE INDEX ix_reservations_payer_hash ON reservations (payer_hash);
CREATE INDEX ix_batches_account_created ON batches (account_id, created_at);
CREATE INDEX ix_batches_workspace_created ON batches (workspace_id, created_at, id);
CREATE INDEX ix_batches_open ON batches (expires_at) WHERE finalized_at IS NULL;
CREATE INDEX ix_batches_kept ON batches (created_at) WHERE purged_at IS NULL;
CREATE INDEX ix_batch_chunks_open ON batch_chunks (ready_at) WHERE state != 'done';
CREATE INDEX ix_vaults_kek_id ON vaults (kek_id);
CREATE INDEX ix_vaults_workspace_id ON vaults (workspace_id);
CREATE UNIQUE INDEX uq_vaults_of_workspace ON vaults (workspace_id) WHERE kind = 'workspace';
CREATE INDEX ix_vault_subjects_workspace_id ON vault_subjects (workspace_id);
CREATE INDEX ix_vault_subjects_attached_vault_id ON vault_subjects (attached_vault_id);
CREATE INDEX ix_interns_workspace_created ON interns (workspace_id, created_at, id);
CREATE INDEX ix_provider_keys_account_id ON provider_keys (account_id);
CREATE INDEX ix_provider_keys_place ON provider_keys (workspace_id, provider);
CREATE INDEX ix_generations_account_created ON generations (account_id, created_at);
CREATE INDEX ix_generations_unknown_cost ON generations (created_at) WHERE cost_state = 'unknown';
CREATE INDEX ix_generations_payer ON generations (payer_hash) WHERE payer_hash IS NOT NULL;
CREATE INDEX ix_generations_interrupted ON generations (created_at) WHERE cost_state = 'interrupted';
CREATE INDEX ix_intern_channel_events_seen ON intern_channel_events (intern_id, seen_at);
CREATE INDEX ix_leases_scope_id_period ON leases (scope, id, period);
COMMIT;
