"""The schema, one module for each slice that owns tables.

Importing this package registers every table on `METADATA`, which the migrations' test compares
with what the migrations make.
"""

from tollhouse.storage.tables import (
    accounting,
    audit,
    batches,
    identity,
    interns,
    notifications,
    provider_keys,
    vault,
)
from tollhouse.storage.tables.base import METADATA

__all__ = [
    "METADATA",
    "accounting",
    "audit",
    "batches",
    "identity",
    "interns",
    "notifications",
    "provider_keys",
    "vault",
]
