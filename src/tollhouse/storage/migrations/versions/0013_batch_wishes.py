"""What a batch says of its providers, in one column: all that a request can say.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_BATCHES = sa.table(
    "batches",
    sa.column("id", sa.Text),
    sa.column("only_providers", sa.JSON),
    sa.column("allow_fallbacks", sa.Boolean),
    sa.column("wish", sa.JSON),
)


def upgrade() -> None:
    """Move what the two columns say into one."""
    op.add_column("batches", sa.Column("wish", sa.JSON, nullable=False, server_default="{}"))
    connection = op.get_bind()
    for row in connection.execute(sa.select(_BATCHES)).all():
        said = {"only": row.only_providers, "allow_fallbacks": row.allow_fallbacks}
        wish = {name: value for name, value in said.items() if value is not None}
        if wish:
            moved = sa.update(_BATCHES).where(_BATCHES.c.id == row.id).values(wish=wish)
            connection.execute(moved)
    op.drop_column("batches", "only_providers")
    op.drop_column("batches", "allow_fallbacks")
