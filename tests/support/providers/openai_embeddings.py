"""The embeddings route of the OpenAI stub.

A vector has four numbers: the number of words, the input's index, and the same halved. A token is a
word, as in its chats.

Source: OpenAI API reference, "Create embeddings".
"""

import struct
from base64 import b64encode
from typing import Any, cast

import msgspec

from tests.support.providers.byte_script import Script
from tests.support.providers.openai_errors import FRAMING, error


def embeddings(body: Any) -> Script:
    """Return the response; `input` must be a string or a list of strings."""
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    if not isinstance(fields.get("model"), str):
        return (error(400, "you must provide a model parameter"),)
    given = fields.get("input")
    listed: object = [given] if isinstance(given, str) else given
    texts = cast("list[Any]", listed) if isinstance(listed, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        return (error(400, "'$.input' is invalid.", param="input"),)
    packed = fields.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(text, index, packed=packed)}
        for index, text in enumerate(texts)
    ]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    reply = {"object": "list", "data": data, "model": fields["model"], "usage": usage}
    return (FRAMING.whole(200, msgspec.json.encode(reply)),)


def _vector(text: str, index: int, *, packed: bool) -> list[float] | str:
    words = float(len(text.split()))
    vector = [words, float(index), words / 2, index / 2]
    return b64encode(struct.pack("<4f", *vector)).decode() if packed else vector
