"""What a request says about which provider may serve it. Pure.

    "models": [...]      further models, tried after `model` fails
    "provider": {...}    which providers, in which order

Source: the public gateway's reference of provider routing. A hard requirement that this gateway
cannot vouch for (`zdr`, `quantizations`, `enforce_distillable_text`) excludes every endpoint that
does not claim it: better no answer than one from the wrong place.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.raw_json import NULL
from tollhouse.inference.types import MaxPrice, Preferences
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.validation_errors import parse_validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
NO_PREFERENCES: Final = Preferences()
_MOST_MODELS: Final = 32


class _Sort(Struct):
    by: str | None = None


class _MaxPrice(Struct):
    prompt: str | float | None = None
    completion: str | float | None = None
    request: str | float | None = None
    image: str | float | None = None


class _Provider(Struct):
    order: list[str] | None = None
    only: list[str] | None = None
    ignore: list[str] | None = None
    allow_fallbacks: bool | None = None
    require_parameters: bool | None = None
    data_collection: Literal["allow", "deny"] | None = None
    zdr: bool | None = None
    enforce_distillable_text: bool | None = None
    quantizations: list[str] | None = None
    sort: str | _Sort | None = None
    max_price: _MaxPrice | None = None


PROVIDER_FIELDS: Final = frozenset(_Provider.__struct_fields__)
"""What `provider` may say."""


class _Fallback(Struct):
    model: str


_models: Final = msgspec.json.Decoder(list[str] | None)
_provider: Final = msgspec.json.Decoder(_Provider | None)
_fallbacks: Final = msgspec.json.Decoder(list[_Fallback] | None)


def read_preferences(fields: Mapping[str, Raw]) -> Preferences:
    """Return what a request's fields say of routing.

    Raises:
        Invalid: A field is of the wrong type, or `models` and `fallbacks` are both given.
    """
    if "provider" not in fields and "models" not in fields and "fallbacks" not in fields:
        return NO_PREFERENCES
    given = _read(_provider, fields, "provider") or _Provider()
    return Preferences(
        models=_further_models(fields),
        order=tuple(given.order or ()),
        only=None if given.only is None else tuple(given.only),
        ignore=tuple(given.ignore or ()),
        allow_fallbacks=given.allow_fallbacks is not False,
        require_parameters=bool(given.require_parameters),
        deny_data_collection=given.data_collection == "deny",
        unsupported_guarantees=_unvouched(given),
        by_price=_sort(given) == "price",
        max_price=None if given.max_price is None else _ceiling(given.max_price),
    )


def _further_models(fields: Mapping[str, Raw]) -> tuple[str, ...]:
    models = _read(_models, fields, "models")
    fallbacks = _read(_fallbacks, fields, "fallbacks")
    if models and fallbacks:
        message = "fallbacks: cannot be given together with models; they say the same."
        raise Invalid(message)
    found = tuple(models or ()) or tuple(each.model for each in fallbacks or ())
    if len(found) > _MOST_MODELS:
        message = f"models: must be at most {_MOST_MODELS} models."
        raise Invalid(message)
    return found


def _read(decoder: msgspec.json.Decoder[T], fields: Mapping[str, Raw], name: str) -> T:
    try:
        return decoder.decode(fields.get(name, NULL))
    except msgspec.ValidationError as error:
        path, problem = parse_validation_error(error)
        raise Invalid(f"{name}{path}: {problem}.") from None
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(f"{name}: cannot be read.") from None


def _unvouched(given: _Provider) -> bool:
    unknown = given.quantizations is not None and "unknown" not in given.quantizations
    return bool(given.zdr or given.enforce_distillable_text or unknown)


def _sort(given: _Provider) -> str | None:
    return given.sort.by if isinstance(given.sort, _Sort) else given.sort


def _ceiling(given: _MaxPrice) -> MaxPrice:
    return MaxPrice(
        prompt=_decimal(given.prompt, "prompt"),
        completion=_decimal(given.completion, "completion"),
        request=_decimal(given.request, "request"),
        image=_decimal(given.image, "image"),
    )


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
