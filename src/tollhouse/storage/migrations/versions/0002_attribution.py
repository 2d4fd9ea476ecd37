"""Attribution: what a request says of itself in its body is kept with the generation.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns."""
    for name in ("categories", "trace", "metadata"):
        op.add_column("generations", sa.Column(name, _text()))


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
