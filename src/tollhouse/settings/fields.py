"""The types of single settings: what text they take, and their error messages.

Every type takes the text that an environment variable would hold. No message repeats what was
given: it may be a secret in the wrong place.
"""

from __future__ import annotations

import ipaddress
import json
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Literal, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from tollhouse.kernel.hosts import InvalidHostName, normal_host
from tollhouse.kernel.money import NANO_PER_CREDIT
from tollhouse.kernel.secret import Secret

T = TypeVar("T")


class InvalidValue(ValueError):
    """A value that a setting does not take; the text reads on from the setting's name."""


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MOST_CREDITS = 1_000_000_000
_MOST_PRICE = 1_000_000
_PRICE_DECIMALS = 18
_CREDIT_DECIMALS = len(str(NANO_PER_CREDIT)) - 1
_NOT_EXACT = "must be in quotes: without them it is a binary float, which is not exact"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_MODEL_NAME = r"[A-Za-z0-9~._:@+-]+"
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
        raise InvalidValue("must be a number")
    return value


def _exact(decimals: int, most: int) -> PlainValidator:
    return PlainValidator(lambda value: _exact_number(value, decimals, most))


def _exact_number(value: object, decimals: int, most: int) -> Decimal:
    if isinstance(value, float):
        raise InvalidValue(_NOT_EXACT)
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise InvalidValue('must be a decimal number in quotes, for example "0.000001"')
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise InvalidValue("must be a plain decimal number") from None
    if not number.is_finite():
        raise InvalidValue("must be a finite number")
    if not 0 <= number <= most:
        raise InvalidValue(f"must be between 0 and {most}")
    if number and _finest_digit(number) < -decimals:
        raise InvalidValue(f"must have at most {decimals} decimals")
    return number.copy_abs()  # "-0" is 0; `abs` would round to 28 digits


def _finest_digit(number: Decimal) -> int:
    _, digits, exponent = number.as_tuple()
    trailing_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return int(exponent) + trailing_zeros


_AS_TEXT = PlainSerializer(lambda number: f"{number:f}", return_type=str, when_used="json")
_DECIMAL_SCHEMA = WithJsonSchema({"type": "string", "format": "decimal"})

_NUMBER = BeforeValidator(_not_a_truth_value)

Whole = Annotated[int, _NUMBER]
"""A whole number; each setting adds its own range."""

_MOST_WORKERS = 64


def _workers(value: object) -> int | str:
    text = str(value).strip().lower()
    if text == "auto":
        return text
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidValue("must be a whole number, or auto")
    if not 1 <= int(text) <= _MOST_WORKERS:
        raise InvalidValue(f"must be between 1 and {_MOST_WORKERS}, or auto")
    return int(text)


WorkerCount = Annotated[int | Literal["auto"], BeforeValidator(_workers)]
"""A number of processes, or as many as there are CPUs."""

Seconds = Annotated[float, _NUMBER, Field(gt=0, le=86_400, allow_inf_nan=False)]
"""A time limit: more than none, at most a day."""

Pause = Annotated[float, _NUMBER, Field(ge=0, le=86_400, allow_inf_nan=False)]
"""A time that may be none, at most a day."""

Share = Annotated[Decimal, _exact(_CREDIT_DECIMALS, 1), _AS_TEXT, _DECIMAL_SCHEMA]
"""A part of a whole, from 0 to 1: text or a whole number, never a float."""

Percent = Annotated[Decimal, _exact(_CREDIT_DECIMALS, 100), _AS_TEXT, _DECIMAL_SCHEMA]
"""Hundredths, from 0 to 100: text or a whole number, never a float."""

Price = Annotated[Decimal, _exact(_PRICE_DECIMALS, _MOST_PRICE), _AS_TEXT, _DECIMAL_SCHEMA]
"""USD a token (or a request), exact: text or a whole number, never a float."""

Credits = Annotated[Decimal, _exact(_CREDIT_DECIMALS, _MOST_CREDITS), _AS_TEXT, _DECIMAL_SCHEMA]
"""An amount of credits, not finer than a billionth: text or a whole number, never a float."""


# --------------------------------------------------------------------------------------- texts


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue("must be text; put it in quotes")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _address(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise InvalidValue("is not a valid address") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise InvalidValue("must be an address that starts with http:// or https://")
    if re.search(r"[\s\x00-\x1f\x7f]", value):
        raise InvalidValue("must not contain spaces or control characters")
    return parts


def _open_address(value: str, instead: str) -> SplitResult:
    """Take apart an address that anybody may see: credentials belong into what `instead` names."""
    parts = _address(value)
    if parts.username is not None or parts.password is not None:
        raise InvalidValue(f"must not contain a user or password; use {instead}")
    if parts.query or parts.fragment:
        raise InvalidValue("must end with its path, without ? or #")
    return parts


def _hook_url(value: str) -> str:
    _open_address(value, "headers")
    return value


def _base_url(value: str) -> str:
    path = _open_address(value, "api_key or headers").path.rstrip("/")
    if path.endswith(("/chat/completions", "/messages")):
        raise InvalidValue("must be the address before /chat/completions or /messages")
    return value.rstrip("/")


def _host(value: str) -> str:
    if not value or re.search(r"[\s/]", value):
        raise InvalidValue("must be an address or a host name, for example 127.0.0.1")
    return value


def _matching(pattern: str, message: str, *, lower: bool = False) -> AfterValidator:
    """Return a check that a text matches as a whole."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise InvalidValue(message)
        return value.lower() if lower else value

    return AfterValidator(check)


def _folder(value: object) -> Path:
    if isinstance(value, Path):
        return value
    text = _text(value)
    if not text.strip():
        raise InvalidValue("must not be empty")
    return Path(text)


def _network(value: object) -> Network:
    if isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
        return value
    try:
        return ipaddress.ip_network(_text(value))
    except ValueError:
        raise InvalidValue(
            "must be an address or a network without host bits, such as 10.0.0.5 or 10.0.0.0/8"
        ) from None


Text = Annotated[str, BeforeValidator(_text)]
"""Text; a number or a truth value has to be put in quotes."""

Filled = Annotated[Text, Field(min_length=1)]
"""Text that is not empty."""

Lowered = Annotated[T, BeforeValidator(_lower)]
"""Words that may be written in capitals, as log levels often are."""

Slug = Annotated[
    Text,
    Field(max_length=64),
    _matching(
        r"[a-z0-9][a-z0-9-]*", "must be lower-case letters, digits and hyphens, not a hyphen first"
    ),
]
ModelId = Annotated[
    Text,
    Field(max_length=256),
    _matching(
        f"{_MODEL_NAME}/{_MODEL_NAME}",
        "must look like author/slug, of letters, digits and ~ . _ : @ + -",
    ),
]
ModelAlias = Annotated[
    Text,
    Field(max_length=256),
    _matching(
        f"{_MODEL_NAME}(/{_MODEL_NAME})?",
        "must be a name of letters, digits and ~ . _ : @ + -, with one / or none",
    ),
]
Folder = Annotated[
    Path,
    PlainValidator(_folder),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "path"}),
]
BaseUrl = Annotated[Text, AfterValidator(_base_url)]
HookUrl = Annotated[Text, AfterValidator(_hook_url)]
Host = Annotated[Text, AfterValidator(_host)]
HostPattern = Annotated[
    Text,
    _matching(
        r"[A-Za-z0-9_.*?\[\]!-]+",
        "must be a host name without port, where * and ? match, such as eu.*",
        lower=True,
    ),
]
Origin = Annotated[
    Text,
    _matching(
        r"(?i:null|[a-z][a-z0-9+.-]*://[^/\s?#@]+)",
        "must be an origin without a path, for example https://app.example, or null",
        lower=True,
    ),
]
InternUrl = Annotated[
    Text,
    _matching(
        rf"https?://\{{intern\}}(?:\.{_LABEL})+(?::[1-9][0-9]{{0,4}})?",
        "must look like https://{intern}.example.com, without a path",
        lower=True,
    ),
]
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
        raise InvalidValue("is empty; leave it out if there is none")
    if not _KEY.fullmatch(text):
        raise InvalidValue("contains a space or a character that no key has")
    return Secret(text)


def _header_value(value: object) -> Secret:
    text = _plain(value).strip()
    if not _PRINTABLE.fullmatch(text):
        raise InvalidValue("must be plain ASCII text on one line, and not empty")
    return Secret(text)


def _proxy(value: object) -> Secret:
    text = _plain(value).strip()
    parts = _address(text)
    if parts.scheme != "http" or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise InvalidValue(
            "must be an HTTP proxy without a path, such as http://proxy.example:3128"
        )
    return Secret(text.rstrip("/"))


def _database_url(value: object) -> Secret:
    text = _plain(value).strip()
    scheme, found, _ = text.partition("://")
    if not found or scheme.partition("+")[0] not in _DATABASES:
        raise InvalidValue("must look like postgresql://user:password@host:5432/name")
    return Secret(text)


def _header_name(value: object) -> str:
    name = _text(value)
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidValue("holds a name that no header can have")
    if name.lower() in _TRANSPORT_HEADERS:
        raise InvalidValue("holds a header that the connection itself writes")
    return name


_NEVER_SHOWN = PlainSerializer(lambda _: Secret.MASK, return_type=str)
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
        raise InvalidValue("must be a host name, for example api.example.com") from None


def _host_address(value: str) -> str:
    name, _, address = value.partition("=")
    try:
        return f"{normal_host(name.strip())}={ipaddress.ip_address(address.strip())}"
    except ValueError:  # an InvalidHostName is one
        raise InvalidValue("must be host=address, for example git.example=10.0.0.5") from None


_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65_535
_NO_HOST_PORT = "must be host:port, for example api.example.com:8443"


def _host_port(value: str) -> str:
    name, _, digits = value.rpartition(":")
    port = int(digits) if _PORT.fullmatch(digits) else 0
    if not 1 <= port <= _LAST_PORT:
        raise InvalidValue(_NO_HOST_PORT)
    try:
        return f"{normal_host(name)}:{port}"
    except InvalidHostName:
        raise InvalidValue(_NO_HOST_PORT) from None


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
        raise InvalidValue("is neither a list in JSON nor texts separated by commas") from None


Listed = Annotated[tuple[T, ...], BeforeValidator(_split)]
"""A list that may be written as one text: JSON, or separated by commas."""


class Section(BaseModel):
    """Base of the sections: frozen, without unknown fields, silent about its input."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, given: object) -> object:
        # `providers:` with every entry commented out is as good as not written. An unknown name
        # stays, so that it is reported.
        if not isinstance(given, dict):
            return given
        fields = cast("dict[object, object]", given)
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in cls.model_fields
        }
