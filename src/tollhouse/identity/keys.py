"""The text of an API key: how it is made, recognised, hashed and shown.

A key is `sk-th-v1-` and 256 random bits. Only its SHA-256 is stored: the text has full entropy,
so a slow password hash would add cost to every request and no safety.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.kernel.ids import IdSource

PREFIX = "sk-th-v1-"
_SHOWN_HEAD = 3
_SHOWN_TAIL = 3


def new_key_text(ids: IdSource) -> str:
    """Return the text of a new key."""
    return PREFIX + ids.key_material()


def hash_key(text: str) -> str:
    """Return the 64 lower-case hex digits under which a key is stored."""
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def mask_key(text: str) -> str:
    """Return the label of a key, `sk-th-v1-abc...xyz`: enough to recognise, useless to a thief."""
    random = text.removeprefix(PREFIX)
    return f"{PREFIX}{random[:_SHOWN_HEAD]}...{random[-_SHOWN_TAIL:]}"
