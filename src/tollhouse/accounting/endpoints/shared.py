"""What the endpoints of accounting share: their services, and amounts of credits on the wire.

An amount that comes in is exact, never a float: on a route of `ExactNumbers` a number with a
fraction reaches a model as it was written.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from tollhouse.accounting.ledger import LedgerService
from tollhouse.accounting.limits import Budget
from tollhouse.accounting.service import AccountingService
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import Manager
from tollhouse.kernel.clock import Clock
from tollhouse.kernel.money import (
    format_credits,
    nano_to_float,
    parse_credits,
    parse_limit,
    parse_signed_credits,
)
from tollhouse.kernel.wire import add_endpoints
from tollhouse.storage.database import Database, Read

_SMALLEST_EXPONENT = -9
_LARGEST_EXPONENT = 18
_LONGEST_INTEGER = 100
_NUMBER = re.compile(r"-?[0-9][0-9.]*")


@dataclass(frozen=True)
class Endpoints:
    """Endpoints with the services that they ask."""

    accounting: AccountingService
    ledger: LedgerService
    identity: IdentityService
    database: Database
    clock: Clock

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        add_endpoints(routes, self)

    @asynccontextmanager
    async def reading(
        self, who: Manager, account_id: str | None
    ) -> AsyncGenerator[tuple[Read, str]]:
        """Begin to read; give the id of the account that a manager means, too."""
        async with self.database.reading() as read:
            yield read, await self.identity.home(read, who, account_id)


class _ExactRequest(Request):
    """A request whose JSON numbers with a fraction stay decimals."""

    async def json(self) -> Any:  # noqa: ANN401 - JSON is anything
        """Return the body."""
        if not hasattr(self, "_json"):
            body = await self.body()
            self._json = json.loads(body, parse_float=_fraction, parse_int=_integer)
        return self._json


def _fraction(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:  # an exponent of twenty digits
        return Decimal("-Infinity" if digits.startswith("-") else "Infinity")


def _integer(digits: str) -> int | Decimal:
    # Python reads no integer of thousands of digits, and would refuse the body without a path.
    return int(digits) if len(digits) < _LONGEST_INTEGER else Decimal(digits)


class ExactNumbers(APIRoute):
    """A route whose body's numbers are not rounded to floats on their way in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which reads bodies exactly."""
        handle = super().get_route_handler()

        async def handle_exactly(request: Request) -> Response:
            return await handle(_ExactRequest(request.scope, request.receive))

        return handle_exactly


def _posted(value: object, others: ValidationInfo) -> int:
    is_signed = others.data.get("kind") == "adjustment"
    return _parsed(value, parse_signed_credits if is_signed else parse_credits)


def _limit(value: object) -> int | None:
    return None if value is None else parsed_limit(value)


def parsed_limit(value: object) -> int:
    """Return the nano-credits of a limit that may be zero; pydantic shows its errors."""
    if isinstance(value, int | Decimal) and value < 0:
        raise PydanticCustomError("limit", "must not be negative")
    return _parsed(value, parse_limit)


def _parsed(value: object, parse: Callable[[str], int]) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if isinstance(value, Decimal) and not value:
        value = "0"
    if isinstance(value, Decimal):
        # Before it is written out: 1e999999999 would take a gigabyte.
        exponent = value.adjusted() if value.is_finite() else _LARGEST_EXPONENT + 1
        if not _SMALLEST_EXPONENT <= exponent <= _LARGEST_EXPONENT:
            raise PydanticCustomError("amount", "the amount is too large or too small")
        value = f"{value:f}"
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise PydanticCustomError("amount", "must be a number of credits, such as 12.5")
    try:
        return parse(value)
    except ValueError as error:
        raise PydanticCustomError("amount", "{text}", {"text": str(error)}) from None


AMOUNT_TEXT = {"type": "string", "pattern": r"^\d+(\.\d{1,9})?$"}
_SIGNED_TEXT = {"type": "string", "pattern": r"^-?\d+(\.\d{1,9})?$"}
PostedAmount = Annotated[
    int,
    BeforeValidator(_posted),
    WithJsonSchema({"anyOf": [_SIGNED_TEXT, {"type": "number"}], "examples": ["12.5"]}),
]
"""A number of credits, in nano-credits: of an adjustment (the `kind` that stands before it)
also negative, but never 0."""

Limit = Annotated[
    int | None,
    BeforeValidator(_limit),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0}, AMOUNT_TEXT, {"type": "null"}],
            "examples": [25],
        }
    ),
]
"""A number of credits that may be zero, in nano-credits; or None for no limit."""

Credits = Annotated[float, BeforeValidator(nano_to_float)]
"""Credits as they are shown; a model is given nano-credits."""

CreditsOrNone = Annotated[
    float | None, BeforeValidator(lambda nano: None if nano is None else nano_to_float(nano))
]
"""The same, where there may be none."""

CreditsText = Annotated[str, BeforeValidator(format_credits)]
"""The same as a text, which is exact; a model is given nano-credits."""


def budget_facts(budget: Budget) -> dict[str, Any]:
    """Return what is shown of every budget, by its names on the wire."""
    return {
        "limit_usd": budget.limit_nano,
        "spend_usd": budget.spend_nano,
        "remaining_usd": budget.remaining_nano,
        "reset_interval": budget.reset,
        "resets_at": budget.resets_at,
        "include_byok": budget.include_byok,
    }
