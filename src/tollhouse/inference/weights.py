"""What a request may take at most, before any endpoint is asked. Pure.

    demand(request)        -> tokens of input and output, images: for the estimate of admission
    count_images(request)  -> the images alone: what an endpoint with an image price charges

Input is counted from the body's bytes, each by its kind, since no provider's tokenizer is at hand:

    bytes                     tokens a byte     as in
    small letters             1/4               words
    capitals                  1                 base64, names of constants
    whitespace                1/8               indentation, which is written as one token
    digits, punctuation       3/4               numbers, JSON, code
    all others (not ASCII)    5/8               a letter of Russian 1.3, of Chinese 1.9

Set against the counts of four public tokenizers (cl100k, o200k, DeepSeek's, Claude 2's) an
estimate is 1.3 times the count for prose in English, 1.2 to 1.4 for JSON, 1.4 to 1.8 for code, and
for no file of them below 0.9; 1.0 to 5.5 for other scripts, the newer the tokenizer, the more. It
falls short by at most a seventh for base64 and identifiers without sense, by about a third for
scripts that tokenizers hardly know, and by two thirds for nothing but words of one letter.

An image, a recording or a document counts a flat `MEDIA_TOKENS`, however long its base64 is. That
is what a picture takes with the providers that take much; a document of many pages takes more.
What a provider adds by itself (its instructions for tools, say) is not counted.
"""

from __future__ import annotations

import math
import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.tokens import MOST_TOKENS
from tollhouse.inference.formats.wire import NULL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.formats.base import ClientRequest
    from tollhouse.inference.formats.fields import Fields

T = TypeVar("T")
MEDIA_TOKENS: Final = 1_600
"""What an image, a recording or a document counts.

Source: https://docs.anthropic.com/en/docs/build-with-claude/vision: about 1,600 tokens for the
largest image that is not scaled down. OpenAI's and Google's tiles mostly come to less.
"""
LEAST_OUTPUT: Final = 16
"""No limit is lower with every provider: OpenAI's responses raise what is below."""
LEAST_THOUGHTS: Final = 1_024
"""Anthropic's smallest budget of thoughts; one that reaches the limit of output is added to it."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for, before any endpoint."""

    input_tokens: int
    """Estimated from its bytes."""
    output_tokens: int | None
    """What its limits allow, for all its answers together; None where it sets none that can be
    read, 0 where nothing is written."""
    images: int
    """How many it holds."""


def demand(request: ClientRequest) -> Demand:
    """Return what a request asks for; whatever the parsers let pass has an answer."""
    body, payloads, media = request.body, 0, _NO_MEDIA
    if _may_hold_payloads(body):
        body, payloads = _without_payloads(body)
    if payloads or _may_hold_media(body):
        media = _media(request.fields)
    return Demand(
        input_tokens=_text_tokens(body) + max(media.all, payloads) * MEDIA_TOKENS,
        output_tokens=_output_tokens(request),
        images=media.images,
    )


def count_images(request: ClientRequest) -> int:
    """Return how many images a request holds, wherever its format allows some."""
    return _media(request.fields).images


# Text

_SMALL: Final = string.ascii_lowercase.encode()
_CAPITALS: Final = string.ascii_uppercase.encode()
_SPACE: Final = b" \t\r\n"
_NOT_ASCII: Final = bytes(range(128, 256))


def _text_tokens(text: bytes) -> int:
    no_small = text.translate(None, _SMALL)
    no_space = no_small.translate(None, _SPACE)
    no_capitals = no_space.translate(None, _CAPITALS)
    rest = no_capitals if no_capitals.isascii() else no_capitals.translate(None, _NOT_ASCII)
    eighths = (
        2 * (len(text) - len(no_small))
        + (len(no_small) - len(no_space))
        + 8 * (len(no_space) - len(no_capitals))
        + 5 * (len(no_capitals) - len(rest))
        + 6 * len(rest)
    )
    return -(-eighths // 8)


# Payloads

_PAYLOAD: Final = re.compile(
    rb'"(?:data|url|image_url|file_data)"\s{0,9}:\s{0,9}"(?:data:[^",]{0,200},)?'
    rb"(?=[A-Za-z0-9+/_\\-]{64})"
)
"""What comes before a long base64 text; what is said to a model stands in other fields."""


def _may_hold_payloads(body: bytes) -> bool:
    return b"base64" in body or b'"input_audio"' in body


def _without_payloads(body: bytes) -> tuple[bytes, int]:
    """Return a body without the base64 of its media, and how many pieces that were."""
    kept: list[bytes] = []
    count = at = 0
    while (found := _PAYLOAD.search(body, at)) is not None:
        start = found.end()
        end = body.index(b'"', start)
        is_text = body.find(b" ", start, end) >= 0
        kept.append(body[at : end if is_text else start])
        count += not is_text
        at = end
    return b"".join((*kept, body[at:])), count


# Media

_IMAGES: Final = frozenset({"image", "image_url", "input_image", "computer_screenshot"})
_OTHER_MEDIA: Final = frozenset(
    {"document", "file", "input_audio", "input_file", "input_video", "video_url"}
)
_SAID: Final = ("messages", "input", "system")
_DEEPEST: Final = 9


@dataclass(slots=True)
class _Media:
    images: int = 0
    all: int = 0


_NO_MEDIA: Final = _Media()


def _may_hold_media(body: bytes) -> bool:
    return (
        b'"image' in body
        or b'"input_' in body
        or b'"file"' in body
        or b'"document"' in body
        or b'"video' in body
    )


class _Part(Struct):
    """A message, an item or a part of one."""

    type: Any = None
    content: Raw = NULL
    output: Raw = NULL
    source: Raw = NULL


_part: Final = msgspec.json.Decoder(_Part)
_NO_PART: Final = _Part()


def _media(fields: Fields) -> _Media:
    found = _Media()
    for name in _SAID:
        _look(fields.get(name, NULL), found, _DEEPEST)
    return found


def _look(data: Raw, found: _Media, depth: int) -> None:
    if not depth:
        return
    for each in _items(data):
        _look(each, found, depth - 1)
    if _begins(data) == b"{":
        _look_at(_read(_part, data, _NO_PART), found, depth)


def _look_at(part: _Part, found: _Media, depth: int) -> None:
    kind = part.type if isinstance(part.type, str) else ""
    found.images += kind in _IMAGES
    found.all += kind in _IMAGES or kind in _OTHER_MEDIA
    for inner in (part.content, part.output, part.source):
        _look(inner, found, depth - 1)


# Output


class _Reasoning(Struct):
    max_tokens: int | float | None = None


_number: Final = msgspec.json.Decoder(int | float | None)
_reasoning: Final = msgspec.json.Decoder(_Reasoning | None)
_UNREADABLE: Final = math.inf


def _output_tokens(request: ClientRequest) -> int | None:
    if not request.output_limits:
        return 0
    fields = request.fields
    limit = _largest(fields, request.output_limits)
    if not limit:
        return None
    each = _with_thoughts(max(limit, LEAST_OUTPUT), fields)
    total = each * (_largest(fields, request.answer_counts) or 1) * _prompts(fields)
    return None if total == _UNREADABLE else min(math.ceil(total), MOST_TOKENS)


def _largest(fields: Fields, names: Sequence[str]) -> float:
    """Return the largest number of some fields, 0 where none is given."""
    largest: float = 0
    for name in names:
        if name in fields:
            largest = max(largest, _number_of(fields[name]))
    return largest


def _number_of(data: Raw) -> float:
    """Return a positive number; 0 for null, infinity where it cannot be read."""
    try:
        number = _number.decode(data)
    except msgspec.DecodeError:
        return _UNREADABLE
    if number is None:
        return 0
    return min(number, MOST_TOKENS) if number > 0 else _UNREADABLE


def _with_thoughts(limit: float, fields: Fields) -> float:
    if "reasoning" not in fields and "reasoning_effort" not in fields:
        return limit
    wanted = _read(_reasoning, fields.get("reasoning", NULL), None)
    budget = max(LEAST_THOUGHTS, (wanted and wanted.max_tokens) or 0)
    return limit + budget if budget >= limit else limit


def _prompts(fields: Fields) -> int:
    """Return how many prompts a completions request has; each is answered by itself."""
    if "prompt" not in fields:
        return 1
    prompts = _items(fields["prompt"])
    return max(1, sum(_begins(each) in {b'"', b"["} for each in prompts))


# JSON

_list: Final = msgspec.json.Decoder(list[Raw])


def _items(data: Raw) -> Sequence[Raw]:
    """Return the items of a list, none of anything else."""
    return _read(_list, data, []) if _begins(data) == b"[" else ()


def _begins(data: Raw) -> bytes:
    return bytes(memoryview(data)[:1])


def _read(decoder: msgspec.json.Decoder[T], data: Raw, otherwise: T) -> T:
    """Return a value; what cannot be read is the provider's to refuse."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return otherwise
