"""The envelope of a batch: what its fields have to be.

`provider` says what it says in a request. Fields of the envelope that nobody knows are ignored, as
everywhere on the wire; those of `provider` are refused, since a wish that is not granted could cost
money.

Source: the public gateway's batch submit body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from tollhouse.batches.types import Endpoint, Submission
from tollhouse.inference.preferences import PROVIDER_FIELDS, read_preferences
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.validation_errors import parse_validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_URL: Final = 2_048


class _Envelope(msgspec.Struct):
    endpoint: Endpoint
    model: Annotated[str, msgspec.Meta(min_length=1)]
    completion_window: Literal["24h"] = "24h"
    provider: dict[str, object] | None = None
    callback_url: Annotated[str, msgspec.Meta(max_length=_LONGEST_URL)] | None = None


_read = msgspec.json.Decoder(_Envelope).decode


def read_envelope(fields: Mapping[str, bytes]) -> Submission:
    """Return what a batch's fields say.

    Args:
        fields: Name -> JSON, of all fields but `requests`.

    Raises:
        Invalid: One is missing or wrong; the message names it.
    """
    given = {name: msgspec.Raw(value) for name, value in fields.items()}
    found = _envelope(given)
    if found.callback_url is not None and not _is_https(found.callback_url):
        message = "callback_url: has to be an https address"
        raise Invalid(message)
    wish = found.provider or {}
    unknown = next((name for name in wish if name not in PROVIDER_FIELDS), None)
    if unknown is not None:
        raise Invalid(f"provider: has no field {unknown!r}")
    read_preferences(given)
    return Submission(found.endpoint, found.model, wish, found.callback_url)


def _envelope(given: Mapping[str, msgspec.Raw]) -> _Envelope:
    try:
        return _read(msgspec.json.encode(given))
    except msgspec.ValidationError as error:
        path, what = parse_validation_error(error)
        place = path.removeprefix(".")
        if place == "endpoint":
            what = f"has to be one of {', '.join(Endpoint)}"
        raise Invalid(f"{place}: {what}" if place else what) from None


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname)
