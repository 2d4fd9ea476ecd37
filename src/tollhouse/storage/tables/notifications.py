"""What changes are notified of, and how often each was."""

from __future__ import annotations

import sqlalchemy as sa

from tollhouse.storage.tables.base import METADATA, integers, text

topics = sa.Table(
    "topics",
    METADATA,
    sa.Column("name", text(), primary_key=True),
    *integers("version"),
)
