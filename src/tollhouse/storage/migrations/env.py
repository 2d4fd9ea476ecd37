"""Alembic's door: runs the migrations in the transaction that `storage.migrator` opened."""

from alembic import context

from tollhouse.storage.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
