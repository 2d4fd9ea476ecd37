"""The types of single settings: what text they take, and what they say when they refuse it.

Every type takes the text that an environment variable would hold. No message repeats what was
given: it may be a secret in the wrong place.
"""

from __future__ import annotations

import ipaddress
import json
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from tollhouse.kernel.hosts import InvalidHostName, normal_host
from tollhouse.kernel.money import NANO_PER_CREDIT
from tollhouse.kernel.secret import Secret

if TYPE_CHECKING:
    from urllib.parse import SplitResult

T = TypeVar("T")


class Refusal(ValueError):
    """What a setting's type says to a value that it does not take; reads on from the name."""


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MOST_CREDITS = 1_000_000_000
_MOST_PRICE = 1_000_000
_PRICE_DECIMALS = 18
_CREDIT_DECIMALS = len(str(NANO_PER_CREDIT)) - 1
_NOT_EXACT = "must be in quotes: without them it is a binary float, which is not exact"
_HOST_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]!-]+")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_INTERN_URL = re.compile(rf"https?://\{{intern\}}(?:\.{_LABEL})+(?::[1-9][0-9]{{0,4}})?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+", re.IGNORECASE)
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_MODEL_ID = re.compile(r"[A-Za-z0-9~._:@+-]+/[A-Za-z0-9~._:@+-]+")
_MODEL_ALIAS = re.compile(r"[A-Za-z0-9~._:@+-]+(/[A-Za-z0-9~._:@+-]+)?")
_TRANSPORT_HEADERS = frozenset(
    ("connection", "content-length", "expect", "host", "transfer-encoding", "upgrade")
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PRINTABLE = re.compile(r"[ -~]+")
_KEY = re.compile(r"[!-~]+")
_DATABASES = ("postgresql", "sqlite")


# ------------------------------------------------------------------------------------- numbers


def _not_a_truth_value(value: object) -> object:
    # In YAML `yes` and `on` are truth values, and Python would take True for 1.
    if isinstance(value, bool):
        raise Refusal("must be a number")
    return value


def _exact(value: object, decimals: int, most: int) -> Decimal:
    if isinstance(value, float):
        raise Refusal(_NOT_EXACT)
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise Refusal('must be a decimal number in quotes, for example "0.000001"')
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise Refusal("must be a plain decimal number") from None
    if not number.is_finite():
        raise Refusal("must be a finite number")
    if not 0 <= number <= most:
        raise Refusal(f"must be between 0 and {most}")
    if number and _finest_digit(number) < -decimals:
        raise Refusal(f"must have at most {decimals} decimals")
    return number.copy_abs()  # "-0" is 0; `abs` would round to 28 digits


def _finest_digit(number: Decimal) -> int:
    _, digits, exponent = number.as_tuple()
    trailing_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return int(exponent) + trailing_zeros


def _price(value: object) -> Decimal:
    return _exact(value, _PRICE_DECIMALS, _MOST_PRICE)


def _share(value: object) -> Decimal:
    return _exact(value, _CREDIT_DECIMALS, 1)


def _credits(value: object) -> Decimal:
    return _exact(value, _CREDIT_DECIMALS, _MOST_CREDITS)


_AS_TEXT = PlainSerializer(lambda number: f"{number:f}", return_type=str, when_used="json")
_DECIMAL_SCHEMA = WithJsonSchema({"type": "string", "format": "decimal"})

Whole = Annotated[int, BeforeValidator(_not_a_truth_value)]
"""A whole number; each setting adds its own range."""

Seconds = Annotated[
    float,
    BeforeValidator(_not_a_truth_value),
    Field(gt=0, le=86_400, allow_inf_nan=False),
]
"""A time limit: more than none, at most a day."""

Pause = Annotated[
    float,
    BeforeValidator(_not_a_truth_value),
    Field(ge=0, le=86_400, allow_inf_nan=False),
]
"""A time that may be none, at most a day."""

Share = Annotated[Decimal, PlainValidator(_share), _AS_TEXT, _DECIMAL_SCHEMA]
"""A part of a whole, from 0 to 1: text or a whole number, never a float."""

Price = Annotated[Decimal, PlainValidator(_price), _AS_TEXT, _DECIMAL_SCHEMA]
"""USD a token (or a request), exact: text or a whole number, never a float."""

Credits = Annotated[Decimal, PlainValidator(_credits), _AS_TEXT, _DECIMAL_SCHEMA]
"""An amount of credits, not finer than a billionth: text or a whole number, never a float."""


# --------------------------------------------------------------------------------------- texts


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Refusal("must be text; put it in quotes")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _address(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise Refusal("is not a valid address") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise Refusal("must be an address that starts with http:// or https://")
    if re.search(r"[\s\x00-\x1f\x7f]", value):
        raise Refusal("must not contain spaces or control characters")
    return parts


def _open_address(value: str, instead: str) -> SplitResult:
    """Take apart an address that anybody may see.

    Args:
        value: The address.
        instead: Where credentials belong, which must not be in it.
    """
    parts = _address(value)
    if parts.username is not None or parts.password is not None:
        raise Refusal(f"must not contain a user or password; use {instead}")
    if parts.query or parts.fragment:
        raise Refusal("must end with its path, without ? or #")
    return parts


def _hook_url(value: str) -> str:
    _open_address(value, "headers")
    return value


def _base_url(value: str) -> str:
    path = _open_address(value, "api_key or headers").path.rstrip("/")
    if path.endswith(("/chat/completions", "/messages")):
        raise Refusal("must be the address before /chat/completions or /messages")
    return value.rstrip("/")


def _slug(value: str) -> str:
    if not _SLUG.fullmatch(value):
        raise Refusal("must be lower-case letters, digits and hyphens, not a hyphen first")
    return value


def _model_id(value: str) -> str:
    if not _MODEL_ID.fullmatch(value):
        raise Refusal("must look like author/slug, of letters, digits and ~ . _ : @ + -")
    return value


def _model_alias(value: str) -> str:
    if not _MODEL_ALIAS.fullmatch(value):
        raise Refusal("must be a name of letters, digits and ~ . _ : @ + -, with one / or none")
    return value


def _host(value: str) -> str:
    if not value or re.search(r"[\s/]", value):
        raise Refusal("must be an address or a host name, for example 127.0.0.1")
    return value


def _host_pattern(value: str) -> str:
    if not _HOST_PATTERN.fullmatch(value):
        raise Refusal("must be a host name without port, where * and ? match, such as eu.*")
    return value.lower()


def _origin(value: str) -> str:
    if not _ORIGIN.fullmatch(value):
        raise Refusal("must be an origin without a path, for example https://app.example")
    return value.lower()


def _intern_url(value: str) -> str:
    if not _INTERN_URL.fullmatch(value):
        raise Refusal("must look like https://{intern}.example.com, without a path")
    return value.lower()


def _folder(value: object) -> Path:
    if isinstance(value, Path):
        return value
    text = _text(value)
    if not text.strip():
        raise Refusal("must not be empty")
    return Path(text)


def _network(value: object) -> Network:
    if isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
        return value
    try:
        return ipaddress.ip_network(_text(value))
    except ValueError:
        raise Refusal(
            "must be an address or a network without host bits, such as 10.0.0.5 or 10.0.0.0/8"
        ) from None


Text = Annotated[str, BeforeValidator(_text)]
"""Text; a number or a truth value has to be put in quotes."""

Filled = Annotated[Text, Field(min_length=1)]
"""Text that is not empty."""

Lowered = Annotated[T, BeforeValidator(_lower)]
"""Words that may be written in capitals, as log levels often are."""

Slug = Annotated[Text, Field(max_length=64), AfterValidator(_slug)]
ModelId = Annotated[Text, Field(max_length=256), AfterValidator(_model_id)]
ModelAlias = Annotated[Text, Field(max_length=256), AfterValidator(_model_alias)]
Folder = Annotated[
    Path,
    PlainValidator(_folder),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "path"}),
]
BaseUrl = Annotated[Text, AfterValidator(_base_url)]
HookUrl = Annotated[Text, AfterValidator(_hook_url)]
Host = Annotated[Text, AfterValidator(_host)]
HostPattern = Annotated[Text, AfterValidator(_host_pattern)]
Origin = Annotated[Text, AfterValidator(_origin)]
InternUrl = Annotated[Text, AfterValidator(_intern_url)]
NetworkField = Annotated[
    Network,
    PlainValidator(_network),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string"}),
]


# ------------------------------------------------------------------------------------- secrets


def _plain(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else _text(value)


def _key(value: object) -> Secret:
    # A key that was read from a file often brings its line end along.
    text = _plain(value).strip()
    if not text:
        raise Refusal("is empty; leave it out if there is none")
    if not _KEY.fullmatch(text):
        raise Refusal("contains a space or a character that no key has")
    return Secret(text)


def _header_value(value: object) -> Secret:
    text = _plain(value).strip()
    if not _PRINTABLE.fullmatch(text):
        raise Refusal("must be plain ASCII text on one line, and not empty")
    return Secret(text)


def _proxy(value: object) -> Secret:
    text = _plain(value).strip()
    parts = _address(text)
    if parts.scheme != "http" or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise Refusal("must be an HTTP proxy without a path, such as http://proxy.example:3128")
    return Secret(text.rstrip("/"))


def _database_url(value: object) -> Secret:
    text = _plain(value).strip()
    scheme, found, _ = text.partition("://")
    if not found or scheme.partition("+")[0] not in _DATABASES:
        raise Refusal("must look like postgresql://user:password@host:5432/name")
    return Secret(text)


def _header_name(value: object) -> str:
    name = _text(value)
    if not _HEADER_NAME.fullmatch(name):
        raise Refusal("holds a name that no header can have")
    if name.lower() in _TRANSPORT_HEADERS:
        raise Refusal("holds a header that the connection itself writes")
    return name


def _masked(_: Secret) -> str:
    return Secret.MASK


_NEVER_SHOWN = PlainSerializer(_masked, return_type=str)
_SECRET_SCHEMA = WithJsonSchema({"type": "string", "format": "password"})

ApiKey = Annotated[Secret, PlainValidator(_key), _NEVER_SHOWN, _SECRET_SCHEMA]
HeaderValue = Annotated[Secret, PlainValidator(_header_value), _NEVER_SHOWN, _SECRET_SCHEMA]
ProxyUrl = Annotated[Secret, PlainValidator(_proxy), _NEVER_SHOWN, _SECRET_SCHEMA]
DatabaseUrl = Annotated[Secret, PlainValidator(_database_url), _NEVER_SHOWN, _SECRET_SCHEMA]
HeaderName = Annotated[str, BeforeValidator(_header_name)]


# --------------------------------------------------------------------------------------- hosts


def _host_name(value: str) -> str:
    try:
        return normal_host(value)
    except InvalidHostName:
        raise Refusal("must be a host name, for example api.example.com") from None


def _host_address(value: str) -> str:
    name, _, address = value.partition("=")
    try:
        return f"{normal_host(name.strip())}={ipaddress.ip_address(address.strip())}"
    except ValueError:  # a NoHostName is one
        raise Refusal("must be host=address, for example git.example=10.0.0.5") from None


_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65_535
_NO_HOST_PORT = "must be host:port, for example api.example.com:8443"


def _host_port(value: str) -> str:
    name, _, digits = value.rpartition(":")
    port = int(digits) if _PORT.fullmatch(digits) else 0
    if not 1 <= port <= _LAST_PORT:
        raise Refusal(_NO_HOST_PORT)
    try:
        return f"{normal_host(name)}:{port}"
    except InvalidHostName:
        raise Refusal(_NO_HOST_PORT) from None


HostName = Annotated[Text, AfterValidator(_host_name)]
HostAddress = Annotated[Text, AfterValidator(_host_address)]
HostPort = Annotated[Text, AfterValidator(_host_port)]


# --------------------------------------------------------------------------------------- lists


def _split(value: object) -> object:
    """Take a list that was written as one text, as the environment has to."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return cast("object", json.loads(text))
    except ValueError:
        raise Refusal("is neither a list in JSON nor texts separated by commas") from None


Listed = Annotated[tuple[T, ...], BeforeValidator(_split)]
"""A list that may be written as one text: JSON, or separated by commas."""
