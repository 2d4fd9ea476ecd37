"""How the schema came to be: one file in `versions` for each change, applied in order.

The same file serves SQLite and PostgreSQL. It spells its tables out instead of importing
`storage.tables`, which moves on while history does not. There is no way down: an upgrade is
one transaction, and the way back from a release is the backup made before it.

A new change: write `versions/NNNN_<name>.py` with the revision `rNNNN`, raise
`storage.revision.HEAD`, and run `make schema`, which writes `storage/schema.sql` for new SQLite
files. The tests print what still differs between the migrated schema and `storage.tables`. A test
of the migration, `tests/component/storage/test_migration_NNNN_<name>.py`, upgrades rows that the
revision before has written.
"""
