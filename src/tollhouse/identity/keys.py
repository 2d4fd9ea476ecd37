"""An API key and its text: how both are made, and how the text is recognised, hashed and shown.

A key is its kind's prefix and 256 random bits. Only its SHA-256 is stored: the text has full
entropy, so a slow password hash would add cost to every request and no safety.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from tollhouse.identity.types import ApiKey, IssuedKey, KeyKind

if TYPE_CHECKING:
    from datetime import datetime

    from tollhouse.identity.types import NewKey
    from tollhouse.kernel.ids import IdSource

PREFIX = "sk-th-v1-"
MANAGEMENT_PREFIX = "sk-th-mgmt-v1-"
"""Of management keys; earlier ones begin as all others do, and stay in force."""
PREFIXES = (PREFIX, MANAGEMENT_PREFIX)
_SHOWN_HEAD = 3
_SHOWN_TAIL = 3


def new_key(
    ids: IdSource, account_id: str, workspace_id: str, wanted: NewKey, now: datetime
) -> IssuedKey:
    """Return a key of a workspace that is stored nowhere yet."""
    text = new_key_text(ids, MANAGEMENT_PREFIX if wanted.kind is KeyKind.MANAGEMENT else PREFIX)
    digest = hash_key(text)
    key = ApiKey(
        hash=digest,
        kind=wanted.kind,
        operator=wanted.operator,
        account_id=account_id,
        workspace_id=workspace_id,
        creator_user_id=wanted.creator_user_id,
        intern_id=wanted.intern_id,
        name=wanted.name,
        label=mask_key(text),
        disabled=False,
        expires_at=wanted.expires_at,
        created_at=now,
        secret_hash=digest,
        payer_hash=wanted.payer_hash,
    )
    return IssuedKey(key, text)


def new_key_text(ids: IdSource, prefix: str = PREFIX) -> str:
    """Return the text of a new key."""
    return prefix + ids.key_material()


def hash_key(text: str) -> str:
    """Return the 64 lower-case hex digits under which a key is stored."""
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def mask_key(text: str) -> str:
    """Return the label of a key, `sk-th-v1-abc...xyz`: enough to recognise, useless to a thief."""
    prefix = MANAGEMENT_PREFIX if text.startswith(MANAGEMENT_PREFIX) else PREFIX
    random = text.removeprefix(prefix)
    return f"{prefix}{random[:_SHOWN_HEAD]}...{random[-_SHOWN_TAIL:]}"
