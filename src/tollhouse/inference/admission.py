"""What a request asks of admission: the most that it can cost at any of its candidates. Pure.

    demand_of(request)             -> tokens of input and output, images
    estimate_raw_demand(body)      -> the same for a body that is not parsed yet: an item of a batch
    admission_request_of(...)      -> what these cost at the dearest candidate, since a fallback may
                                      be dearer than the first choice

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

from tollhouse.accounting.admission.types import FREE_PER_MINUTE, AdmissionRequest, Admitted, Rate
from tollhouse.accounting.owner import end_user
from tollhouse.accounting.pricing import affordable_output, estimate, maximum_cost, most_fees
from tollhouse.inference.formats.messages import DEFAULT_MAX_TOKENS
from tollhouse.inference.formats.wire import MAX_TOKENS, NULL, fields_decoder
from tollhouse.inference.types import Demand, Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.limits import AccountingRules
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.formats.wire import Fields
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.inference.routing import Candidate

T = TypeVar("T")
_PER_MINUTE = "requests-per-min"


def admission_request_of(
    generation_id: str,
    request: InferenceRequest,
    candidates: Sequence[Candidate],
    rules: AccountingRules,
) -> AdmissionRequest:
    """Return what a request asks of admission, with at least one candidate to serve it."""
    subject = request.subject
    admission = AdmissionRequest(
        generation_id, subject.account_id, subject.key_hashes, request.received.at
    )
    if user := request.attribution.external_user:
        admission.end_user = end_user(subject.workspace_id, user)
    first = candidates[0]
    if len(candidates) == 1 and first.own_key is None and not first.model.is_free_variant:
        if first.model.requests_per_minute is not None:
            admission.rate = _rate(first, rules)
        _raise_to(admission, request, first, rules)
    else:
        _ask_for_all(admission, request, candidates, rules)
    return admission


def _ask_for_all(
    admission: AdmissionRequest,
    request: InferenceRequest,
    candidates: Sequence[Candidate],
    rules: AccountingRules,
) -> None:
    """Say what any of several candidates may ask for, free ones and own keys among them."""
    limited = [candidate for candidate in candidates if uses_free_limits(candidate)]
    # A free model behind a paid one counts, too: the paid one may be there to be refused.
    for candidate in (candidates[0], *limited):
        if admission.rate is None:
            admission.rate = _rate(candidate, rules)
    shared = [candidate for candidate in candidates if candidate.own_key is None]
    # What may end at the gateway's own key holds what that costs.
    admission.own_key = not shared
    for candidate in shared or candidates:
        _raise_to(admission, request, candidate, rules)
    admission.free, admission.only_free = bool(limited), len(limited) == len(candidates)
    if shared and len(shared) < len(candidates):
        _raise_own(admission, request, candidates)
        admission.free_later = (
            admission.free
            and candidates[0].own_key is not None
            and _rate(candidates[0], rules) is None
        )


def _raise_own(
    admission: AdmissionRequest, request: InferenceRequest, candidates: Sequence[Candidate]
) -> None:
    """Say what the provider may take from the customer, with one of the own keys."""
    demand = demand_of(request)
    admission.either_way, admission.open_ended = True, demand.output_tokens is None
    for each in candidates:
        if each.own_key is not None:
            least, most = (most_cost(demand, tokens, each) for tokens in _outputs(demand, each))
            admission.own_minimum_nano = max(admission.own_minimum_nano, least)
            admission.own_maximum_nano = max(admission.own_maximum_nano, most)


def uses_free_limits(candidate: Candidate) -> bool:
    """Tell whether a candidate counts towards the limits of free models: none with an own key."""
    is_shared = candidate.own_key is None
    return is_shared and candidate.model.is_free_variant and candidate.endpoint.free_limits


def allowed_candidates(
    request: AdmissionRequest, candidates: Sequence[Candidate], *, may_use_free: bool
) -> Sequence[Candidate]:
    """Return those of a request's candidates that the limits of free models leave."""
    if request.free and not may_use_free:
        return [candidate for candidate in candidates if not uses_free_limits(candidate)]
    return candidates


def most_output(demand: Demand, candidate: Candidate) -> int:
    """Return the most tokens that a request's answers may take together, at one candidate."""
    return _outputs(demand, candidate)[1]


def most_cost(demand: Demand, output_tokens: int, candidate: Candidate) -> int:
    """Return the most that a request may cost with so much output, at one candidate."""
    price = candidate.endpoint.price
    return maximum_cost(demand.input_tokens, output_tokens, demand.images, price, demand.searches)


def output_limits(
    demand: Demand, candidates: Sequence[Candidate], admitted: Admitted
) -> tuple[int | None, int | None]:
    """Return the limits of output, see `output_limit`, with the gateway's keys and with own ones.

    None where it needs no limit with them.
    """
    own = [each for each in candidates if each.own_key is not None]
    shared = [each for each in candidates if each.own_key is None]
    spendable = (shared, admitted.spendable_nano), (own, admitted.own_spendable_nano)
    gateways, customers = (
        None if nano is None or not some else output_limit(demand, some, nano)
        for some, nano in spendable
    )
    return gateways, customers


def output_limit(demand: Demand, candidates: Sequence[Candidate], spendable_nano: int) -> int:
    """Return the limit of output, for each answer, with which a request costs no more than it may.

    The request sets none. This one pays for the dearest of the candidates, and no model refuses it
    for its size. Where not even a token is paid for, it is one token: no provider takes less.
    """
    room = min(
        min(
            _known_limit(candidate) or MAX_TOKENS,
            max(1, candidate.model.context_length - demand.input_tokens),
        )
        for candidate in candidates
    )
    paid = (
        affordable_output(
            spendable_nano,
            demand.input_tokens,
            demand.images,
            candidate.endpoint.price,
            demand.searches,
        )
        for candidate in candidates
    )
    tokens = min((tokens for tokens in paid if tokens is not None), default=MAX_TOKENS)
    return min(room, limit_of_each_choice(demand, tokens))


def _raise_to(
    admission: AdmissionRequest,
    request: InferenceRequest,
    candidate: Candidate,
    rules: AccountingRules,
) -> None:
    """Raise the amounts to what the request may cost at one more candidate."""
    price, cap = candidate.endpoint.price, rules.request_cap_nano
    if price.is_free:
        return
    demand = demand_of(request)
    tokens, fees = demand.input_tokens, 0
    least, most = _outputs(demand, candidate)
    dearest = estimate(tokens, most, price)
    if price.has_fees:
        fees = most_fees(demand.images, demand.searches, price)
        if price.rates.request:
            admission.fee_nano = max(admission.fee_nano, most_fees(0, 0, price))
    if demand.output_tokens is None:
        admission.open_ended, held = True, estimate(tokens, None, price, cap)
        cheapest = estimate(tokens, least, price) + fees
        admission.minimum_nano = max(admission.minimum_nano, cheapest)
    else:
        held = min(cap, dearest)
    admission.paid = True
    admission.estimate_nano = max(admission.estimate_nano, held)
    admission.maximum_nano = max(admission.maximum_nano, dearest + fees)


def _known_limit(candidate: Candidate) -> int | None:
    return candidate.endpoint.max_completion_tokens or candidate.model.max_completion_tokens


def _outputs(demand: Demand, candidate: Candidate) -> tuple[int, int]:
    """Return how many tokens a request must be able to pay for beside its prompt, and the most."""
    dialect, answers = candidate.adapter.dialect, demand.choices
    lowest = LEAST_OUTPUT if dialect is Dialect.RESPONSES else 0
    least = (lowest + demand.reasoning_tokens) * answers
    if demand.output_tokens is not None:
        return least, max(demand.output_tokens, answers * lowest)
    known = _known_limit(candidate)
    if known is None and dialect is Dialect.MESSAGES:
        known = DEFAULT_MAX_TOKENS + demand.reasoning_tokens
    return least, (known or candidate.model.context_length) * answers


def _rate(candidate: Candidate, rules: AccountingRules) -> Rate | None:
    own, is_free = candidate.model.requests_per_minute, uses_free_limits(candidate)
    if candidate.own_key is not None and candidate.model.is_free_variant:
        return None
    if own is not None:
        return Rate(FREE_PER_MINUTE if is_free else _PER_MINUTE, candidate.model.id, own)
    return Rate(FREE_PER_MINUTE, None, rules.free_per_minute) if is_free else None


MEDIA_TOKENS: Final = 1_600
"""What an image, a recording or a document counts.

Source: https://docs.anthropic.com/en/docs/build-with-claude/vision: about 1,600 tokens for the
largest image that is not scaled down. OpenAI's and Google's tiles mostly come to less.
"""
LEAST_OUTPUT: Final = 16
"""The lowest limit of OpenAI's responses; one below is raised to it when it is sent there."""
LEAST_THOUGHTS: Final = 1_024
"""Anthropic's smallest reasoning budget; one that reaches the output limit is added to it."""


def demand_of(request: InferenceRequest) -> Demand:
    """Return what a request asks for, before any endpoint."""
    if request.demand is None:
        request.demand = estimate_demand(request.parsed, request.body)
    return request.demand


def estimate_demand(request: ClientRequest, body: bytes) -> Demand:
    """Return what a request asks for; whatever the parsers let pass has an answer."""
    fields = request.fields
    if not request.output_limits:
        return _demand(body, fields, 0)
    if _SIZES.isdisjoint(fields):
        return _demand(body, fields, None)
    return _demand_of_writing(body, fields, request.output_limits, request.answer_counts)


def estimate_raw_demand(body: bytes) -> Demand:
    """Return what a body of unknown format asks for.

    It is what `estimate_demand` says of the request, unless that has fields of another format that
    its own would not look at, or a limit that some provider raises to `LEAST_OUTPUT`, since nobody
    knows yet who answers. Of embeddings, which write nothing, it says that they set no limit. What
    is no JSON object is text without a limit.
    """
    fields = _read_or(fields_decoder, body, {})
    return _demand_of_writing(body, fields, _ALL_LIMITS, _ALL_COUNTS, LEAST_OUTPUT)


def limit_of_each_choice(demand: Demand, tokens: int) -> int:
    """Return the limit with which all answers, reasoning included, take at most so many tokens.

    The request sets none. It is 1 or more, since no provider takes less.
    """
    each = tokens // demand.choices
    return max(1, each if each > demand.reasoning_tokens else each - demand.reasoning_tokens)


def _demand_of_writing(
    body: bytes, fields: Fields, limits: Sequence[str], counts: Sequence[str], least: int = 0
) -> Demand:
    limit = _largest(fields, limits)
    answers = (_largest(fields, counts) or 1) * (_prompts(body) if "prompt" in fields else 1)
    thoughts = _thoughts(fields)
    if not limit or max(limit, answers) == _UNREADABLE:
        readable = 1 if answers == _UNREADABLE else math.ceil(answers)
        return _demand(body, fields, None, readable, thoughts)
    each = max(limit, least)
    total = (each + thoughts if thoughts >= each else each) * answers
    return _demand(body, fields, min(math.ceil(total), MAX_TOKENS), math.ceil(answers))


def _demand(
    body: bytes, fields: Fields, output_tokens: int | None, answers: int = 1, thoughts: int = 0
) -> Demand:
    text, payloads, media = body, 0, _NO_MEDIA
    hides_names = _hides_names(body)
    if hides_names or _TYPED.search(body):
        if b"base64" in body or b'"input_audio"' in body:
            text, payloads = _without_payloads(body)
        if payloads or hides_names or _MEDIA_TYPE.search(text):
            media = _media(body)
    return Demand(
        input_tokens=_text_tokens(text) + max(media.all, payloads) * MEDIA_TOKENS,
        output_tokens=output_tokens,
        images=media.images,
        choices=answers,
        reasoning_tokens=thoughts,
        searches=_searches(body, fields) if "tools" in fields else 0,
    )


def _hides_names(body: bytes) -> bool:
    """Tell whether the name of a type may be written with escapes, so that a search misses it."""
    # To look for a single character first takes a tenth of the time.
    return b"\\" in body and _ESCAPED_ASCII.search(body) is not None


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
_WEIGHTS: Final = bytes(
    next((eighths for kind, eighths in _EIGHTHS_OF_A_TOKEN if byte in kind), _OTHERS)
    for byte in range(256)
)


def _text_tokens(text: bytes) -> int:
    """Return what a text counts.

    The lower half of an Adler-32 is the sum of the bytes, at a twentieth of what `sum` takes.

    Source: RFC 1950, section 8.2.
    """
    weights = text.translate(_WEIGHTS)
    if len(weights) <= _BLOCK:
        return -(-(adler32(weights, 0) & 0xFFFF) // 8)
    blocks, eighths = memoryview(weights), 0
    for at in range(0, len(weights), _BLOCK):
        eighths += adler32(blocks[at : at + _BLOCK], 0) & 0xFFFF
    return -(-eighths // 8)


# Payloads

_TYPED: Final = re.compile(rb'"type"')
"""The name of a field that every part of a message has that is no plain text. To search for it
with `in` takes half as long again."""
_ESCAPED_ASCII: Final = re.compile(rb"\\u00[2-7]")
"""A printable character that needs no escape: it may stand in the name of a type."""
_PAYLOAD: Final = re.compile(
    rb'"(?:data|url|image_url|file_data)"\s{0,9}:\s{0,9}"(?:data:[^",]{0,200},)?'
    rb"(?=[A-Za-z0-9+/_\\-]{64})"
)
"""What comes before a long base64 text; what is said to a model stands in other fields."""


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
_MEDIA_TYPE: Final = re.compile(
    b'"(?:' + b"|".join(name.encode() for name in sorted(_IMAGES | _OTHER_MEDIA)) + b')"'
)
_DEEPEST: Final = 9


@dataclass(slots=True)
class _Media:
    images: int = 0
    all: int = 0


_NO_MEDIA: Final = _Media()


class _Part(Struct):
    """A message, an item or a part of one."""

    type: Any = None
    content: Raw = NULL
    output: Raw = NULL
    source: Raw = NULL


_part: Final = msgspec.json.Decoder(_Part)


class _Said(Struct):
    """What a request says, in the fields of any format."""

    messages: Raw = NULL
    input: Raw = NULL
    system: Raw = NULL
    prompt: Raw = NULL


_said: Final = msgspec.json.Decoder(_Said)


def _media(body: bytes) -> _Media:
    said, found = _read_or(_said, body, _Said()), _Media()
    for each in (said.messages, said.input, said.system):
        _look(each, found, _DEEPEST)
    return found


def _look(data: Raw, found: _Media, depth: int) -> None:
    if not depth:
        return
    for each in _items(data):
        _look(each, found, depth - 1)
    if _begins(data) == b"{":
        part = _read_or(_part, data, _Part())
        kind = part.type if isinstance(part.type, str) else ""
        found.images += kind in _IMAGES
        found.all += kind in _IMAGES or kind in _OTHER_MEDIA
        for inner in (part.content, part.output, part.source):
            _look(inner, found, depth - 1)


# Output

_ALL_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ALL_COUNTS: Final = ("n", "best_of")
_THOUGHTS: Final = ("reasoning", "reasoning_effort")
_SIZES: Final = frozenset({*_ALL_LIMITS, *_ALL_COUNTS, *_THOUGHTS, "prompt"})
"""All fields that say how much is written."""


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


def _thoughts(fields: Fields) -> int:
    """Return the reasoning budget by which a limit may be raised; 0 where none is asked for."""
    if fields.keys().isdisjoint(_THOUGHTS):
        return 0
    given = _read_or(_reasoning, fields.get("reasoning", NULL), None)
    asked = (given and given.max_tokens) or 0
    return math.ceil(min(max(LEAST_THOUGHTS, asked), MAX_TOKENS))


def _searches(body: bytes, fields: Fields) -> int:
    """Return how many searches of the web a request with tools allows, as far as it says.

    Source: `max_uses` of Anthropic's tool, `max_tool_calls` of OpenAI's responses.
    """
    if b"web_search" not in body and not _hides_names(body):
        return 0
    given = (_read_or(_tool, each, _NO_TOOL) for each in _items(fields["tools"]))
    tools = [each for each in given if "web_search" in each.type]
    limits = [_number_of(each.max_uses) for each in tools]
    if tools:
        limits.append(_largest(fields, ("max_tool_calls",)))
    return math.ceil(sum(each for each in limits if each != _UNREADABLE))


class _Tool(Struct):
    type: str = ""
    max_uses: Raw = NULL


_tool: Final = msgspec.json.Decoder(_Tool)
_NO_TOOL: Final = _Tool()


def _prompts(body: bytes) -> int:
    """Return how many prompts a completions request has; each is answered by itself."""
    prompts = _items(_read_or(_said, body, _Said()).prompt)
    return max(1, sum(_begins(each) in {b'"', b"["} for each in prompts))


# JSON

_list: Final = msgspec.json.Decoder(list[Raw])


def _items(data: Raw) -> Sequence[Raw]:
    """Return the items of a list, none of anything else."""
    return _read_or(_list, data, []) if _begins(data) == b"[" else ()


def _begins(data: Raw) -> bytes:
    return bytes(memoryview(data)[:1])


def _read_or(decoder: msgspec.json.Decoder[T], data: Raw | bytes, otherwise: T) -> T:
    """Return a value; what cannot be read is the provider's to refuse."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return otherwise
