"""What the formats share: JSON decoded in part, estimates, costs, like events of a stream."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Raw

from tollhouse.accounting.types import Charge, Usage
from tollhouse.kernel.errors import Invalid, parse_validation_error
from tollhouse.kernel.json_text import (
    escape_controls,
    replace_lone_surrogates,
    replace_numbers_that_are_none,
)
from tollhouse.kernel.money import nano_to_float

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


T = TypeVar("T")
Fields = dict[str, msgspec.Raw]
"""A JSON object of which only the top level is decoded."""

GATEWAY_FIELDS: Final = frozenset(
    {
        "fallbacks",
        "models",
        "provider",
        "route",
        "plugins",
        "transforms",
        "session_id",
        "trace",
        "usage",
        "debug",
    }
)
"""Request fields addressed to the gateway; a provider would reject them."""

DONE: Final = b"[DONE]"
"""The data of a stream's last event: in some dialects, and from some servers in every one."""
_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_DONE: Final = 20
"""Bytes, spaces included: what is longer is not looked at closely."""
NULL: Final = Raw(b"null")
NO_FIELDS: Final[Mapping[str, Raw]] = {}
encoder: Final = msgspec.json.Encoder()
fields_decoder: Final = msgspec.json.Decoder(Fields)
text_decoder: Final = msgspec.json.Decoder(str | None)
_GIVEN: Final = re.compile(r" '.*'$", re.DOTALL)
_string = msgspec.json.Decoder(str)
_list = msgspec.json.Decoder(list[Raw])
_any = msgspec.json.Decoder(Raw)
_flag = msgspec.json.Decoder(bool | None)


def read_object(body: bytes) -> Fields:
    """Return the fields of a body; raises `Invalid` if it is not JSON or not an object."""
    try:
        if not body.isascii():
            # The decoder does not check the encoding of raw values.
            body.decode()
        return fields_decoder.decode(body)
    except msgspec.ValidationError:
        raise Invalid("The body must be a JSON object.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"The body is not valid JSON: {_position(error, body)}.") from None


def read_optional(
    decoder: msgspec.json.Decoder[T], fields: Fields, name: str, wanted: str
) -> T | None:
    """Return a field's value, as `read_field` does; None if it is missing."""
    return read_field(decoder, fields, name, wanted) if name in fields else None


def read_typed(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body as a type; the message of `Invalid` begins with the first bad field's path."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(_wrong_field(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"The body is not valid JSON: {_position(error, body)}.") from None


def try_decode(decoder: msgspec.json.Decoder[T], data: bytes | str | Raw) -> T | None:
    """Return decoded JSON; None if it is not of the decoder's type."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_at(decoder: msgspec.json.Decoder[T], data: Raw, path: str) -> T:
    """Decode the part of a body at a path, as `read_typed` does."""
    try:
        return read_typed(decoder, bytes(data))
    except Invalid as error:
        raise Invalid(_below(path, error.message)) from None


def _below(path: str, finding: str) -> str:
    """Return a part's validation error as one of the body."""
    if finding.startswith("The body"):
        return f"{path}: must be JSON that is not nested too deeply."
    if finding.startswith("body: "):
        return f"{path}: {finding.removeprefix('body: ')}"
    return f"{path}{'' if finding.startswith('[') else '.'}{finding}"


def _wrong_field(error: msgspec.ValidationError) -> str:
    """Return the decoder's error as path and problem: "messages[2].role: Expected `str` ..."."""
    path, problem = parse_validation_error(error)
    # The given value stays out of the message: it may be a secret.
    problem = _GIVEN.sub("", problem)
    path = path.lstrip(".").replace("[...]", "{}")
    return f"{path or 'body'}: {problem}."


def _position(error: Exception, body: bytes) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    # msgspec's message quotes nothing of the body, and names the position unless it is the end.
    text = str(error).removeprefix("JSON is malformed: ")
    return text if "(byte " in text else f"it ends too early (byte {len(body)})"


def read_model(fields: Fields) -> str:
    """Return the requested model; raises `Invalid` if it is missing, empty or not a string."""
    return read_field(_string, fields, "model", "a string", filled=True)


def read_messages(fields: Fields) -> None:
    """Raise `Invalid` if the messages are missing, empty or not a list."""
    if begins_list_of_objects(fields.get("messages", NULL)):
        return
    if not read_field(_list, fields, "messages", "a list of messages"):
        raise Invalid("messages: at least one message is required.")


def begins_list(value: Raw) -> bool:
    """Return whether a value is a list."""
    return memoryview(value)[0] == _LIST


def begins_list_of_objects(value: Raw) -> bool:
    """Return whether a value is a list that begins with an object, written without a space."""
    written = memoryview(value)
    return written[0] == _LIST and written[1] == _OBJECT


_LIST, _OBJECT = b"[{"


def read_flag(fields: Fields, name: str) -> bool:
    """Return whether a field is true; missing and null count as false, others are `Invalid`."""
    return name in fields and bool(read_field(_flag, fields, name, "true or false"))


def read_field(
    decoder: msgspec.json.Decoder[T],
    fields: Fields,
    name: str,
    wanted: str,
    *,
    filled: bool = False,
) -> T:
    """Return a field's value; `wanted` is its type, for the error message.

    Raises `Invalid` if it is missing, of another type, or empty although `filled`.
    """
    if name not in fields:
        raise Invalid(f"{name}: this field is required.")
    try:
        value = decoder.decode(fields[name])
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(f"{name}: must be {wanted}.") from None
    if filled and not value:
        raise Invalid(f"{name}: must not be empty.")
    return value


# JSON that is forwarded without being decoded


def replace_invalid_text(data: bytes) -> bytes:
    """Return a provider's JSON with U+FFFD in place of invalid UTF-8, as event streams do.

    The same for halves of characters, which the decoder would refuse.

    A byte order mark at its start is taken away, and `NaN` and infinity, which Python's servers
    write, become null. Control characters in texts are escaped, and others taken away.

    Raw values are not checked later, and clients reject a response with such bytes.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """
    if try_decode(_any, data) is None:
        # What is replaced is refused by the decoder, except bytes that are not UTF-8.
        data = escape_controls(data.removeprefix(_BOM))
        data = replace_numbers_that_are_none(replace_lone_surrogates(data))
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace").encode()
    return data


def decode_mended(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Decode a provider's JSON as `replace_invalid_text` mends it, where that is needed."""
    try:
        if not data.isascii():
            data.decode()
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decoder.decode(replace_invalid_text(data))


def is_done(data: bytes) -> bool:
    """Tell whether an event is the last of a stream; some servers pad it with spaces or quotes."""
    return len(data) <= _LONGEST_DONE and data.strip().strip(b'"').strip() == DONE


def says_nothing(data: bytes) -> bool:
    """Tell whether an event is empty, or null."""
    return not data or (len(data) <= _LONGEST_DONE and data.strip() in _NOTHING)


_NOTHING: Final = (b"", b"null")


def read_id(fields: Fields) -> str | None:
    """Return the id of a reply, which some servers write as a number."""
    return id_text(try_decode(_text_or_number, fields.get("id", NULL)))


def id_text(given: AnyId) -> str | None:
    """Return an id as text."""
    return None if given is None else str(given)


AnyId = str | int | float | None
"""An id as servers write it."""
_text_or_number: Final = msgspec.json.Decoder(AnyId)


def join_lines(data: bytes) -> bytes:
    """Return an event's JSON on one line; providers and clients may spread theirs over several.

    Raw values keep their line breaks, which would end the `data:` line of an event.
    """
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


def has_line_breaks(data: bytes) -> bool:
    """Tell whether data would be more than one line of an event."""
    return b"\n" in data or b"\r" in data


def text_bytes(text: str) -> int:
    """Return how many bytes a text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def raw(value: object) -> Raw:
    """Return a value as raw JSON."""
    return Raw(encoder.encode(value))


def given(value: Raw) -> Raw | None:
    """Return a value; None for a JSON null."""
    return None if value == NULL else value


def given_fields(fields: Fields, names: Iterable[str]) -> Fields:
    """Return those of some fields that are neither missing nor null."""
    return {name: fields[name] for name in names if name in fields and fields[name] != NULL}


def without(fields: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    """Return fields without those of some names."""
    if not names:
        return dict(fields)
    return {name: value for name, value in fields.items() if name not in names}


def for_provider(fields: Fields, rejected: frozenset[str], model: str) -> dict[str, object]:
    """Return the fields of a provider's request: without some, and with its name of the model."""
    if rejected.isdisjoint(fields):
        return {**fields, "model": model}
    return {**without(fields, rejected), "model": model}


def present(fields: Mapping[str, T | None]) -> dict[str, T]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def texts(value: str | list[str] | None) -> tuple[str, ...]:
    """Return the texts of a field that holds one or several."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def named_event(kind: str, data: bytes) -> bytes:
    """Return an event with its name; line breaks in its JSON become spaces."""
    return b"event: " + kind.encode() + b"\ndata: " + join_lines(data) + b"\n\n"


# Token estimates

BYTES_PER_TOKEN = 4
"""The usual rule of thumb for English text; good enough for an estimate."""

MAX_TOKENS = 2**31 - 1
"""No response has more; the cost of far more would not fit its column."""


def estimate_tokens(size: int) -> int:
    """Estimate the tokens of a text of `size` bytes; at least one if it is not empty."""
    return -(-size // BYTES_PER_TOKEN)


def estimate_usage(request_size: int, output_size: int) -> Usage:
    """Estimate the tokens of a request and its response from their bytes."""
    return Usage(
        input_tokens=estimate_tokens(request_size), output_tokens=estimate_tokens(output_size)
    )


# Costs


def render_costs(charge: Charge) -> dict[str, object]:
    """Return the cost fields of a `usage`; `cost` is null if it is unknown."""
    if charge.cost is None:
        return {"cost": None, "is_byok": charge.is_byok}
    upstream = nano_to_float(charge.cost.total_nano) if charge.is_byok else None
    return {
        "cost": nano_to_float(charge.cost_nano),
        "is_byok": charge.is_byok,
        "cost_details": {
            "upstream_inference_cost": upstream,
            "upstream_inference_prompt_cost": nano_to_float(charge.cost.prompt_nano),
            "upstream_inference_completions_cost": nano_to_float(charge.cost.completion_nano),
        },
    }


class EventTemplate:
    """The constants of one kind of event."""

    def __init__(self, constants: Sequence[bytes]) -> None:
        self._first, *self._between, self._last = constants
        self._begin, self._left = len(self._first), len(self._last)
        self._pattern = b"%b".join(text.replace(b"%", b"%%") for text in constants)

    @classmethod
    def of(cls, data: bytes, values: Mapping[str, Raw]) -> EventTemplate | None:
        """Return the template of an event in which some fields have these values.

        The fields are in the order of the event, and may be nested. None if there is none, or one
        cannot be located: its name stands there twice, or with other spaces than usual.
        """
        if not values:
            return None
        constants: list[bytes] = []
        at = 0
        for name, value in values.items():
            key = b'"%b":' % name.encode()
            start = data.find(key, at)
            if start < 0 or data.find(key[:-1]) != start or data.rfind(key[:-1]) != start:
                return None
            start += len(key)
            start += data.startswith(b" ", start)
            if not data.startswith(bytes(value), start):
                return None
            constants.append(data[at:start])
            at = start + len(value)
        return cls([*constants, data[at:]])

    def values(self, data: bytes) -> list[bytes] | None:
        """Return what stands in the places of the values; None if a constant is another one.

        The caller must decode them: only if each is valid JSON, they are the values.
        """
        if not (data.startswith(self._first) and data.endswith(self._last)):
            return None
        at, end = self._begin, len(data) - self._left
        if not self._between:
            return [data[at:end]]
        values: list[bytes] = []
        for text in self._between:
            found = data.find(text, at, end)
            if found < 0:
                return None
            values.append(data[at:found])
            at = found + len(text)
        values.append(data[at:end])
        return values

    def fill(self, values: Sequence[bytes | Raw]) -> bytes:
        """Return the event with these values."""
        return self._pattern % tuple(values)
