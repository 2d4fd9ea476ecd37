"""What the endpoints of every slice share: base models, texts, times, pages, routes, refusals.

A body is closed and strict: an unknown field, a number in quotes or a null where none belongs is
refused with the field's path, so that a typing error is never taken for a default.
"""

from __future__ import annotations

import re
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from tollhouse.kernel.clock import iso_utc
from tollhouse.kernel.pages import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import APIRouter

T = TypeVar("T")
Endpoint = TypeVar("Endpoint", bound="Callable[..., Any]")
MOST_SKIPPED: Final = 2**31 - 1
"""No list is longer; larger offsets would overflow a database's integers."""

_UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|\+00:00)")


class RequestModel(BaseModel):
    """Base of request bodies: closed and strict."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ResponseModel(BaseModel):
    """Base of response bodies and their parts; `model_validate` takes what has their attributes."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        use_attribute_docstrings=True,
        # A field is always sent, also where it has a default.
        json_schema_serialization_defaults_required=True,
    )


class Deleted(ResponseModel):
    """The answer to a deletion."""

    deleted: bool = True
    """Always true."""


def _storable(value: str) -> str:
    # PostgreSQL has no NUL in a text.
    if "\0" in value:
        raise PydanticCustomError("text", "must not contain the character U+0000")
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON can write down half of a surrogate pair, which no UTF-8 text holds.
        raise PydanticCustomError("text", "must be valid Unicode") from None
    return value


STORABLE: Final = AfterValidator(_storable)
"""Refuses text that some database cannot store; goes last in an `Annotated`."""

Name = Annotated[str, Field(min_length=1, max_length=100), STORABLE]
"""What people call something."""

Reference = Annotated[str, Field(min_length=1), STORABLE]
"""An id, or another name of one thing."""


def _not_null(value: object) -> object:
    if value is None:
        raise PydanticCustomError("null", "may be left out, but must not be null")
    return value


if TYPE_CHECKING:
    Omittable = T | None
else:
    # To pydantic the type is T alone; the default is never validated.
    Omittable = Annotated[T, BeforeValidator(_not_null)]
"""A field that may be absent (then it is None) and must not be null."""


def _utc_time(value: object) -> datetime:
    if isinstance(value, str) and _UTC_TIME.fullmatch(value):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    raise PydanticCustomError(
        "utc_time", "must be an ISO 8601 time in UTC with seconds, such as 2030-01-31T12:00:00Z"
    )


_TIME_SCHEMA = WithJsonSchema({"type": "string", "format": "date-time"})
UtcTime = Annotated[datetime, BeforeValidator(_utc_time), _TIME_SCHEMA]
"""A point in time as clients send it: in UTC, with seconds."""

SentTime = Annotated[datetime, PlainSerializer(iso_utc), _TIME_SCHEMA]
"""A point in time as we send it: in UTC, with milliseconds."""


class PageQuery(BaseModel):
    """Query parameters: which part of a list is wanted."""

    offset: int = Field(default=0, ge=0, le=MOST_SKIPPED, description="How many to skip.")
    limit: int = Field(default=50, ge=1, le=100, description="How many to return at most.")

    def window(self) -> Window:
        """Return the part of the list that the repository has to read."""
        return Window(self.offset, self.limit)


OTHER_ACCOUNT: Final = "For an operator: the account that is meant, if not the key's own."


class AccountPageQuery(PageQuery):
    """Query parameters: which part of a list is wanted, and of which account."""

    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of an operation for its errors; `api.openapi` adds their bodies."""
    return {status: {"description": HTTPStatus(status).phrase} for status in statuses}


_ROUTE: Final = "_route"


def endpoint(
    method: str, path: str, tag: str, *refused: int, status: int | None = None
) -> Callable[[Endpoint], Endpoint]:
    """Declare a method of a class as the endpoint of a path; `add_endpoints` adds it to a router.

    Its docstring is its description in the OpenAPI document.

    Args:
        method: Of HTTP.
        path: Without the API's version.
        tag: Where the document lists it.
        refused: The statuses of its refusals.
        status: That of its success; 201 of a POST and 200 of all others, unless given.
    """

    def declare(serve: Endpoint) -> Endpoint:
        route: dict[str, object] = {
            "path": path,
            "methods": [method],
            "tags": [tag],
            "status_code": status or (201 if method == "POST" else 200),
            "responses": refusals(*refused),
        }
        setattr(serve, _ROUTE, route)
        return serve

    return declare


def add_endpoints(routes: APIRouter, holder: object) -> None:
    """Add the endpoints that the class of an object declares, in their order."""
    for name, each in vars(type(holder)).items():
        if (route := getattr(each, _ROUTE, None)) is not None:
            routes.add_api_route(endpoint=getattr(holder, name), **route)
