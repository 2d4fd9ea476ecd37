"""What a request may take at most, before any endpoint is asked. Pure.

    demand(request)        -> tokens of input and output, images: for the estimate of admission
    rough_demand(body)     -> the same for a body that no format has read yet: an item of a batch
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
from zlib import adler32

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.fields import fields_decoder
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.inference.formats.tokens import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.formats.adapter import ClientRequest
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
"""Anthropic's smallest reasoning budget; one that reaches the output limit is added to it."""


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
    choices: int = 1
    """How many are written, each as long as the limit allows."""
    reasoning_tokens: int = 0
    """The tokens by which an output limit below the reasoning budget may be raised."""


def demand(request: ClientRequest) -> Demand:
    """Return what a request asks for; whatever the parsers let pass has an answer."""
    fields = request.fields
    if not request.output_limits:
        return _demand(request.body, fields, 0)
    return _demand_of_writing(request.body, fields, request.output_limits, request.answer_counts)


def estimate_raw_demand(body: bytes) -> Demand:
    """Return what a body asks for whose format nobody knows yet.

    It is what `demand` says of the request, unless that has fields of another format that its own
    would not look at. Of embeddings, which write nothing, it says that they set no limit.

    Args:
        body: Anything. What is no JSON object is text without a limit.
    """
    fields = _read(fields_decoder, body, {})
    return _demand_of_writing(body, fields, _ALL_LIMITS, _ALL_COUNTS)


def limit_of_each_choice(wanted: Demand, tokens: int) -> int:
    """Return the limit of output with which all answers together take no more than some tokens.

    Args:
        wanted: What the request asks for; it sets no limit.
        tokens: The most that all its answers may take, reasoning included.

    Returns:
        1 or more, since no provider takes less.
    """
    each = tokens // wanted.choices
    return max(1, each if each > wanted.reasoning_tokens else each - wanted.reasoning_tokens)


def _demand_of_writing(
    body: bytes, fields: Fields, limits: Sequence[str], counts: Sequence[str]
) -> Demand:
    limit, answers = _largest(fields, limits), _answers(fields, counts)
    thoughts = _thoughts(fields)
    if not limit or max(limit, answers) == _UNREADABLE:
        readable = 1 if answers == _UNREADABLE else math.ceil(answers)
        return _demand(body, fields, None, readable, thoughts)
    each = max(limit, LEAST_OUTPUT)
    total = (each + thoughts if thoughts >= each else each) * answers
    return _demand(body, fields, min(math.ceil(total), MAX_TOKENS))


def _demand(
    body: bytes, fields: Fields, output_tokens: int | None, answers: int = 1, thoughts: int = 0
) -> Demand:
    text, payloads, media = body, 0, _NO_MEDIA
    if _TYPED in body:
        if _may_hold_payloads(body):
            text, payloads = _without_payloads(body)
        if payloads or _may_hold_media(text):
            media = _media(fields)
    return Demand(
        input_tokens=_text_tokens(text) + max(media.all, payloads) * MEDIA_TOKENS,
        output_tokens=output_tokens,
        images=media.images,
        choices=answers,
        reasoning_tokens=thoughts,
    )


def count_images(request: ClientRequest) -> int:
    """Return how many images a request holds, wherever its format allows some."""
    return _media(request.fields).images


# Text

_EIGHTHS_OF_A_TOKEN: Final = (
    (string.ascii_lowercase.encode(), 2),
    (string.ascii_uppercase.encode(), 8),
    (b" \t\r\n", 1),
    (bytes(range(128, 256)), 5),
)
_OTHERS: Final = 6
_BLOCK: Final = 8_190
"""Bytes of which none weighs more than 8 and whose sum stays below Adler-32's modulus of 65,521."""


def _weights() -> bytes:
    weights = bytearray([_OTHERS]) * 256
    for kind, eighths in _EIGHTHS_OF_A_TOKEN:
        for byte in kind:
            weights[byte] = eighths
    return bytes(weights)


_WEIGHTS: Final = _weights()


def _text_tokens(text: bytes) -> int:
    """Return what a text counts.

    The lower half of an Adler-32 is the sum of the bytes, at a twentieth of what `sum` takes.

    Source: RFC 1950, section 8.2.
    """
    weights, eighths = memoryview(text.translate(_WEIGHTS)), 0
    for at in range(0, len(weights), _BLOCK):
        eighths += adler32(weights[at : at + _BLOCK], 0) & 0xFFFF
    return -(-eighths // 8)


# Payloads

_TYPED: Final = b'"type"'
"""The name of a field that every part of a message has that is no plain text."""
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
        end = body.find(b'"', start)
        if end < 0:  # no JSON: it ends amid the payload
            break
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


_ALL_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ALL_COUNTS: Final = ("n", "best_of")


class _Reasoning(Struct):
    max_tokens: int | float | None = None


_number: Final = msgspec.json.Decoder(int | float | None)
_reasoning: Final = msgspec.json.Decoder(_Reasoning | None)
_UNREADABLE: Final = math.inf


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
    return min(number, MAX_TOKENS) if number > 0 else _UNREADABLE


def _answers(fields: Fields, counts: Sequence[str]) -> float:
    """Return how many answers are written, for all prompts together."""
    return (_largest(fields, counts) or 1) * _prompts(fields)


def _thoughts(fields: Fields) -> int:
    """Return the reasoning budget by which a limit may be raised; 0 where none is asked for."""
    if "reasoning" not in fields and "reasoning_effort" not in fields:
        return 0
    wanted = _read(_reasoning, fields.get("reasoning", NULL), None)
    asked = (wanted and wanted.max_tokens) or 0
    return math.ceil(min(max(LEAST_THOUGHTS, asked), MAX_TOKENS))


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


def _read(decoder: msgspec.json.Decoder[T], data: Raw | bytes, otherwise: T) -> T:
    """Return a value; what cannot be read is the provider's to refuse."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return otherwise
