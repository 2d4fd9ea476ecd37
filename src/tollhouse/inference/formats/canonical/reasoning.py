"""Packs signed or encrypted reasoning so that a client can send it back to its provider.

Providers sign or encrypt their models' reasoning, and a client that continues a conversation sends
it back unchanged. If the client's format has no field for a part of the block, `pack` puts the
whole block into the opaque field that the format has (`signature` and `data` of Messages,
`encrypted_content` of Responses), and `unpack` takes it out again.

The packed text is not encrypted: it is base64 of JSON and holds what the provider sent.

Source: the public gateway's reference of reasoning tokens, for the names of the formats.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from tollhouse.inference.formats.canonical.blocks import ReasoningBlock

ANTHROPIC: Final = "anthropic-claude-v1"
OPENAI: Final = "openai-responses-v1"
_PREFIX: Final = "th1."
_block = msgspec.json.Decoder(ReasoningBlock)


def pack(reasoning: ReasoningBlock) -> str:
    """Return a reasoning block as one opaque string."""
    return _PREFIX + urlsafe_b64encode(msgspec.json.encode(reasoning)).decode()


def unpack(text: str) -> ReasoningBlock | None:
    """Return the block of a string that `pack` made; None for any other string."""
    if not text.startswith(_PREFIX):
        return None
    try:
        return _block.decode(urlsafe_b64decode(text.removeprefix(_PREFIX)))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
