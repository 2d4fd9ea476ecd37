"""One request to a model: what arrived, and what is found in it on its way through the pipeline.

    InferenceRequest(body, headers, ...)     what arrived, who asks and when
    parse(request)                           what it asks for, in which dialects it can be asked,
                                             who may serve it, which program sent it

What is found is small: the conversation stays in the body, and whoever needs it is given that.

Which provider may serve it is in two fields of its body:

    "models": [...]      further models, tried after `model` fails
    "provider": {...}    which providers, in which order

A hard requirement that this gateway cannot vouch for (`zdr`, `quantizations`,
`enforce_distillable_text`) excludes every endpoint that does not claim it: better no answer than
one from the wrong place.

Which program sent it is in its headers, and in `user`, `session_id`, `trace` and `metadata` of its
body. It is stored with the generation. The body's session goes before the header's.

Source: the public gateway's references of provider routing and of the chat request, for the names
and their limits.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Optional, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from tollhouse.accounting.types import Attempt, Attribution
from tollhouse.inference.formats.wire import (
    NULL,
    encoder,
    raw,
    read_optional,
    text_decoder,
    try_decode,
    without,
)
from tollhouse.inference.types import NO_PREFERENCES, MaxPrice, Preferences
from tollhouse.kernel.clock import to_millis
from tollhouse.kernel.errors import Invalid, parse_validation_error
from tollhouse.kernel.json_text import replace_lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.identity.types import Subject
    from tollhouse.inference.formats.adapter import AdaptedResponse, AdaptedStream, ClientRequest
    from tollhouse.inference.formats.registry import Adapters, ApiFormat
    from tollhouse.inference.formats.wire import Fields
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.types import Demand, Model, ReplyIdentity
    from tollhouse.kernel.clock import Now

T = TypeVar("T")


@dataclass(slots=True)
class InferenceRequest:
    """One request on its way through the pipeline, whose steps fill it."""

    api_format: ApiFormat
    body: bytes = field(repr=False)
    headers: Mapping[bytes, bytes] = field(repr=False)
    """Names in lower case."""
    query: bytes = field(repr=False)
    """The URL's query string, without the `?`."""
    subject: Subject
    """The key that asks, whose account pays."""
    attribution: Attribution
    """What the headers say of the program that sent it; `parse` adds what the body says."""
    received: Now
    created_ms: int = field(init=False)
    """The same in milliseconds since the epoch."""
    in_batch: bool = False
    """Whether it is an item of a batch: it has a price of its own, and what it may cost is reserved
    already."""

    # Filled by `parse`
    parsed: ClientRequest = field(init=False)
    adapters: Adapters = field(init=False)
    """How it can be asked: an adapter for each dialect, the best first."""
    preferences: Preferences = NO_PREFERENCES

    demand: Demand | None = None
    """Filled by `demand_of`."""

    only_own_keys: bool = field(default=False, init=False)
    """Whether nothing is reserved for the gateway's own endpoints, so that none may serve it."""

    # Filled by its generation
    generation_id: str = field(default="", init=False)
    models: Sequence[Model] = field(default=(), init=False)
    """The model that was asked for, and those that may stand in for it."""
    output_limits: tuple[int | None, int | None] | None = field(default=None, init=False)
    """With the gateway's keys and with own ones, where no more can be paid for."""
    output_limit: int | None = field(default=None, init=False)
    """Which of them it was given."""
    estimate_nano: int = field(default=0, init=False)
    """What it was thought to cost at most when it was admitted."""
    candidate: Candidate | None = field(default=None, init=False)
    """The endpoint that was asked last."""
    attempts: list[Attempt] = field(default_factory=list[Attempt], init=False)
    identity: ReplyIdentity | None = field(default=None, init=False)
    """What its reply says of itself, once a provider accepted it."""
    response: AdaptedResponse | AdaptedStream | None = field(default=None, init=False)
    first_byte_at: float | None = field(default=None, init=False)
    """When (monotonic seconds) the first byte of its response came."""

    def __post_init__(self) -> None:
        self.created_ms = to_millis(self.received.at)

    @property
    def model(self) -> Model:
        """The model that was asked last, or else the one that was asked for."""
        return self.models[0] if self.candidate is None else self.candidate.model

    @property
    def provider_name(self) -> str | None:
        """The provider that was asked last; None if none was."""
        return self.attempts[-1].provider if self.attempts else None

    @property
    def first_byte_ms(self) -> int | None:
        """Milliseconds from its arrival to the first byte of its response."""
        if self.first_byte_at is None:
            return None
        return int((self.first_byte_at - self.received.monotonic) * 1000)

    def parse_body(self) -> None:
        """Read the body in its format.

        Raises:
            Invalid: It is not of its format.
        """
        try:
            self.adapters = self.api_format.parse(self.body, self.headers, self.query)
        except Invalid:
            # No format reads a half of a character, so only what is refused may have one.
            given, self.body = self.body, replace_lone_surrogates(self.body)
            if self.body is given:
                raise
            self.adapters = self.api_format.parse(self.body, self.headers, self.query)
        self.parsed = self.adapters.request

    def limit_output(self, tokens: int) -> None:
        """Become the request that would have come with a limit of output in place of its own."""
        names = self.parsed.output_limits
        fields = without(self.parsed.whole(self.body), names)
        # The last name is the one that every server knows.
        fields[names[-1]] = raw(tokens)
        self.body = encoder.encode(fields)
        self.parse_body()

    def forget_reply(self) -> None:
        """Be as before a provider began to answer."""
        self.identity = self.response = self.first_byte_at = None

    def fill(self, parsed: InferenceRequest) -> None:
        """Take what a worker found in a copy of it."""
        for name in _FOUND:
            setattr(self, name, getattr(parsed, name))


_FOUND: Final = ("body", "parsed", "adapters", "preferences", "attribution", "demand")


def parse(request: InferenceRequest) -> None:
    """Fill in what a request asks for.

    Raises:
        Invalid: It is not of its format, or says of routing what makes no sense.
    """
    request.parse_body()
    fields = request.parsed.fields
    if _SAID_TO_US.isdisjoint(fields):
        request.preferences = NO_PREFERENCES
        return
    _require_few_stops(fields)
    request.preferences = read_preferences(fields)
    if request.preferences.require_parameters:
        # One that cannot be translated says so again when an endpoint is asked.
        with suppress(Invalid):
            request.adapters.read(request.body)
    request.attribution = attribute(
        request.attribution, fields, anthropic=request.api_format.anthropic
    )


_MOST_STOPS: Final = 1_024
"""Texts that end a reply. Providers take fewer, as a rule 4; a list of millions only costs time."""
_STOPS: Final = ("stop", "stop_sequences")
_stops: Final = msgspec.json.Decoder(list[Raw])


def _require_few_stops(fields: Fields) -> None:
    for name in _STOPS:
        # No value takes less than two bytes, so a short field need not be looked at.
        if len(fields.get(name, NULL)) > 2 * _MOST_STOPS:
            stops = try_decode(_stops, fields[name])
            if stops is not None and len(stops) > _MOST_STOPS:
                raise Invalid(f"{name}: must be at most {_MOST_STOPS} texts.")


# Who may serve it

_ROUTING_FIELDS: Final = frozenset({"provider", "models", "fallbacks"})
_MOST_MODELS: Final = 32
_Providers = Annotated[list[str], Meta(max_length=256)]


class _Sort(Struct):
    by: str | None = None


class _MaxPrice(Struct):
    prompt: str | float | None = None
    completion: str | float | None = None
    request: str | float | None = None
    image: str | float | None = None


class _Provider(Struct):
    order: Optional[_Providers] = None  # noqa: UP045 - `|` knows no annotated type
    only: Optional[_Providers] = None  # noqa: UP045
    ignore: Optional[_Providers] = None  # noqa: UP045
    allow_fallbacks: bool | None = None
    require_parameters: bool | None = None
    data_collection: Literal["allow", "deny"] | None = None
    zdr: bool | None = None
    enforce_distillable_text: bool | None = None
    quantizations: Optional[_Providers] = None  # noqa: UP045
    sort: str | _Sort | None = None
    max_price: _MaxPrice | None = None


PROVIDER_FIELDS: Final = frozenset(_Provider.__struct_fields__)
"""What `provider` may say."""


class _Fallback(Struct):
    model: str


_models: Final = msgspec.json.Decoder(list[str] | None)
_provider: Final = msgspec.json.Decoder(_Provider | None)
_fallbacks: Final = msgspec.json.Decoder(list[_Fallback] | None)


def read_preferences(fields: Fields) -> Preferences:
    """Return what a request's fields say of routing.

    Raises:
        Invalid: A field is of the wrong type, or `models` and `fallbacks` are both given.
    """
    if _ROUTING_FIELDS.isdisjoint(fields):
        return NO_PREFERENCES
    given = _routing_field(_provider, fields, "provider") or _Provider()
    return Preferences(
        models=_further_models(fields),
        order=tuple(given.order or ()),
        only=None if given.only is None else tuple(given.only),
        ignore=tuple(given.ignore or ()),
        allow_fallbacks=given.allow_fallbacks is not False,
        require_parameters=bool(given.require_parameters),
        deny_data_collection=given.data_collection == "deny",
        unsupported_guarantees=_unvouched(given),
        zdr=given.zdr is True,
        by_price=(given.sort.by if isinstance(given.sort, _Sort) else given.sort) == "price",
        max_price=None if given.max_price is None else _ceiling(given.max_price),
    )


def _further_models(fields: Fields) -> tuple[str, ...]:
    models = _routing_field(_models, fields, "models")
    fallbacks = _routing_field(_fallbacks, fields, "fallbacks")
    if models and fallbacks:
        raise Invalid("fallbacks: cannot be given together with models; they say the same.")
    found = tuple(models or ()) or tuple(each.model for each in fallbacks or ())
    if len(found) > _MOST_MODELS:
        raise Invalid(f"models: must be at most {_MOST_MODELS} models.")
    return found


def _routing_field(decoder: msgspec.json.Decoder[T], fields: Fields, name: str) -> T:
    try:
        return decoder.decode(fields.get(name, NULL))
    except msgspec.ValidationError as error:
        path, problem = parse_validation_error(error)
        raise Invalid(f"{name}{path}: {problem}.") from None
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(f"{name}: cannot be read.") from None


def _unvouched(given: _Provider) -> bool:
    unknown = given.quantizations is not None and "unknown" not in given.quantizations
    return bool(given.enforce_distillable_text or unknown)


def _ceiling(given: _MaxPrice) -> MaxPrice:
    names = _MaxPrice.__struct_fields__
    return MaxPrice(**{name: _decimal(getattr(given, name), name) for name in names})


def _decimal(value: str | float | None, name: str) -> Decimal | None:
    if value is None:
        return None
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        price = Decimal(-1)
    if not price.is_finite() or price < 0:
        raise Invalid(f"provider.max_price.{name}: must be a price of at least 0.")
    return price


# Which program sent it

_ATTRIBUTION_FIELDS: Final = frozenset({"user", "session_id", "trace", "metadata"})
_LARGEST_TRACE: Final = 16_384
_LONGEST_USER: Final = 512
_LONGEST_HEADER: Final = 512

_Session = Annotated[str, Meta(max_length=256)]
_session: Final[msgspec.json.Decoder[str | None]] = msgspec.json.Decoder(
    Optional[_Session]  # noqa: UP045 - `|` knows no annotated type
)
_object = msgspec.json.Decoder(dict[str, Any])
_Key = Annotated[str, Meta(max_length=64)]
_Value = Annotated[str, Meta(max_length=512)]
_Map = Annotated[dict[_Key, _Value], Meta(max_length=16)]
_metadata: Final[msgspec.json.Decoder[dict[str, str] | None]] = msgspec.json.Decoder(
    Optional[_Map]  # noqa: UP045
)


class _Anthropics(msgspec.Struct):
    user_id: str | None = None


_anthropics = msgspec.json.Decoder(_Anthropics | None)


def attribution(headers: Mapping[bytes, bytes]) -> Attribution:
    """Return what a request's headers say of the program that sent it."""
    return _attribution(tuple(map(headers.get, _HEADERS)))


_HEADERS: Final = (
    b"http-referer",
    b"referer",
    b"x-openrouter-title",
    b"x-title",
    b"user-agent",
    b"x-session-id",
    b"x-openrouter-categories",
)


@lru_cache(maxsize=256)
def _attribution(values: tuple[bytes | None, ...]) -> Attribution:
    """Return what the values of `_HEADERS` say; a program sends the same with every request."""
    own_referer, referer, own_title, title, agent, session, categories = map(_text, values)
    return Attribution(
        http_referer=own_referer or referer,
        app_title=own_title or title,
        user_agent=agent,
        session_id=session,
        categories=categories,
    )


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    # A NUL is no text to PostgreSQL.
    return value[:_LONGEST_HEADER].decode("utf-8", "replace").replace("\0", "")


def attribute(given: Attribution, fields: Fields, *, anthropic: bool) -> Attribution:
    """Return what the headers and the body say; Anthropic's `metadata` has a `user_id` alone.

    Raises:
        Invalid: A field is of the wrong type or too long; the message begins with its name.
    """
    if _ATTRIBUTION_FIELDS.isdisjoint(fields):
        return given
    user = read_optional(text_decoder, fields, "user", "a string")
    metadata: Raw | None = None
    if anthropic:
        user = user or _user_id(fields)
    elif read_optional(_metadata, fields, "metadata", "at most 16 texts of 512 characters"):
        metadata = fields["metadata"]
    session = read_optional(_session, fields, "session_id", "a string of at most 256 characters")
    return Attribution(
        http_referer=given.http_referer,
        app_title=given.app_title,
        user_agent=given.user_agent,
        external_user=None if user is None else user[:_LONGEST_USER],
        session_id=session or given.session_id,
        categories=given.categories,
        trace=_trace(fields),
        metadata=None if metadata is None else bytes(metadata).decode(),
    )


def _user_id(fields: Fields) -> str | None:
    said = read_optional(_anthropics, fields, "metadata", "an object with a user_id")
    return None if said is None else said.user_id


def _trace(fields: Fields) -> str | None:
    """Return the trace as JSON that everybody can read again: no huge numbers, no depths."""
    if fields.get("trace", NULL) == NULL:
        return None
    try:
        trace = msgspec.json.encode(_object.decode(fields["trace"]))
    except (msgspec.DecodeError, RecursionError, OverflowError, ValueError):
        raise Invalid("trace: must be an object.") from None
    if len(trace) > _LARGEST_TRACE:
        raise Invalid(f"trace: must be at most {_LARGEST_TRACE} bytes.")
    return trace.decode()


_SAID_TO_US: Final = _ROUTING_FIELDS.union(_ATTRIBUTION_FIELDS, _STOPS)
"""The fields of a request that `parse` looks at; most requests have none of them."""
