"""Bodies of batches, whole and in pieces."""

import json
from collections.abc import AsyncIterator
from typing import Any

CHAT = "/v1/chat/completions"


def item(custom_id: str = "a", **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "body": body}


def items(count: int, size: int = 2_000) -> list[dict[str, Any]]:
    return [item(str(number), max_tokens=100, text="x" * size) for number in range(count)]


def submitted(*entries: Any, **fields: Any) -> bytes:
    envelope = {"endpoint": CHAT, "model": "acme/large"} | fields
    return json.dumps(envelope | {"requests": list(entries)}).encode()


async def in_pieces(body: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), size):
        yield body[begin : begin + size]
