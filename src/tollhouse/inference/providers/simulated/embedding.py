"""Simulated embeddings: a deterministic vector for each text. Pure."""

from __future__ import annotations

import math
from hashlib import shake_128
from typing import Final

import msgspec

from tollhouse.inference.providers.simulated.request import InvalidSimulatedRequest

DIMENSIONS: Final = 64
MAX_DIMENSIONS: Final = 4_096
_Tokens = list[int]
_BYTES_A_NUMBER = 2


class _Request(msgspec.Struct):
    input: str | list[str | int | _Tokens | dict[str, msgspec.Raw]]
    dimensions: int | None = None


_request = msgspec.json.Decoder(_Request)


def embeddings(model: str, body: bytes) -> dict[str, object]:
    """Return the response to an embeddings request.

    A word counts as one token, a token id as well.

    Raises:
        InvalidSimulatedRequest: The input or the dimensions are invalid.
    """
    try:
        request = _request.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidSimulatedRequest(f"input: {error}.") from None
    size = DIMENSIONS if request.dimensions is None else request.dimensions
    if not 1 <= size <= MAX_DIMENSIONS:
        raise InvalidSimulatedRequest(f"dimensions: must be from 1 to {MAX_DIMENSIONS}.")
    texts = _texts(request.input)
    tokens = sum(len(text.split()) for text in texts)
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(text, size)}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": usage}


def _texts(given: str | list[str | int | _Tokens | dict[str, msgspec.Raw]]) -> list[str]:
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(each, int) for each in given):
        return [" ".join(map(str, given))]  # the tokens of one text
    return [_text(each) for each in given]


def _text(given: str | int | _Tokens | dict[str, msgspec.Raw]) -> str:
    if isinstance(given, list):
        return " ".join(map(str, given))
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def _vector(text: str, size: int) -> list[float]:
    """Return a vector of length 1 whose direction is the text's hash."""
    digest = shake_128(text.encode("utf-8", "replace")).digest(size * _BYTES_A_NUMBER)
    halves = zip(digest[::2], digest[1::2], strict=True)
    numbers = [(high * 256 + low) / 32_767.5 - 1 for high, low in halves]
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return [number / length for number in numbers]
