"""Decodes the top level of a request's body and the fields that the gateway interprets."""

from __future__ import annotations

import re
from collections.abc import Sized
from typing import Final, TypeVar

import msgspec

from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.validation_errors import parse_validation_error

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

_GIVEN: Final = re.compile(r" '.*'$", re.DOTALL)
fields_decoder: Final = msgspec.json.Decoder(Fields)
_string = msgspec.json.Decoder(str)
_flag = msgspec.json.Decoder(bool | None)


def read_object(body: bytes) -> Fields:
    """Return the fields of a body.

    Raises:
        Invalid: The body is not JSON (the message names the position) or not an object.
    """
    try:
        if not body.isascii():
            # The decoder does not check the encoding of raw values.
            body.decode()
        return fields_decoder.decode(body)
    except msgspec.ValidationError:
        message = "The body must be a JSON object."
        raise Invalid(message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"The body is not valid JSON: {_position(error, body)}."
        raise Invalid(message) from None


def read_typed(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body as a type.

    Raises:
        Invalid: The body does not match; the message begins with the path of the first bad field.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(_wrong_field(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"The body is not valid JSON: {_position(error, body)}."
        raise Invalid(message) from None


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
    """Return the requested model.

    Raises:
        Invalid: The field is missing, empty or not a string.
    """
    return read_field(_string, fields, "model", "a string", filled=True)


def read_flag(fields: Fields, name: str) -> bool:
    """Return whether a field is true; a missing or null one counts as false.

    Raises:
        Invalid: The field is not a boolean or null.
    """
    return name in fields and bool(read_field(_flag, fields, name, "true or false"))


def read_field(
    decoder: msgspec.json.Decoder[T],
    fields: Fields,
    name: str,
    wanted: str,
    *,
    filled: bool = False,
) -> T:
    """Return a field's value.

    Args:
        decoder: Of the field's type.
        fields: The body's top-level fields.
        name: The field's name.
        wanted: The expected type, for the error message.
        filled: Whether an empty value is rejected.

    Raises:
        Invalid: The field is missing, of another type, or empty although `filled`.
    """
    if name not in fields:
        raise Invalid(f"{name}: this field is required.")
    try:
        value = decoder.decode(fields[name])
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(f"{name}: must be {wanted}.") from None
    if filled and isinstance(value, Sized) and not len(value):
        raise Invalid(f"{name}: must not be empty.")
    return value
