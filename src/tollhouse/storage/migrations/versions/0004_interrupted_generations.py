"""Generations that a kill cut off, with what they were thought to cost at most.

Revision ID: r0004
Revises: r0003
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0004"
down_revision = "r0003"

_BEFORE = "cost_state IN ('exact', 'estimated', 'unknown')"
_NOW = "cost_state IN ('exact', 'estimated', 'unknown', 'interrupted')"


def upgrade() -> None:
    """Add the column and the state; SQLite changes a condition only by making the table anew."""
    op.add_column("generations", sa.Column("estimate_nano", sa.BigInteger))
    if op.get_bind().dialect.name == "sqlite":
        _make_anew("generations", _BEFORE, _NOW)
    else:
        name = op.f("ck_generations_cost_state")
        op.drop_constraint(name, "generations")
        op.create_check_constraint(name, "generations", _NOW)
    c.index_where(
        "ix_generations_interrupted", "generations", "created_at", "cost_state = 'interrupted'"
    )


def _make_anew(table: str, before: str, after: str) -> None:
    """Make a table anew with another condition: its rows, then its indexes."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text("SELECT type, sql FROM sqlite_master WHERE tbl_name = :table AND sql IS NOT NULL"),
        {"table": table},
    ).all()
    made = {kind: [row.sql for row in found if row.type == kind] for kind in ("table", "index")}
    (sql,) = made["table"]
    new = f"{table}_new"
    for statement in (
        sql.replace(table, new, 1).replace(before, after),
        f"INSERT INTO {new} SELECT * FROM {table}",  # noqa: S608 - its own names
        f"DROP TABLE {table}",
        f"ALTER TABLE {new} RENAME TO {table}",
        *made["index"],
    ):
        connection.exec_driver_sql(statement)
