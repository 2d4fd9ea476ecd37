"""`/credits`: what an account has, bringing credits in and taking them out.

Source: `GET /credits` is the public gateway's; `POST /credits` is ours, for the operator.
"""

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, Field

from tollhouse.accounting.endpoints.amounts import ExactNumbers, PostedAmount
from tollhouse.accounting.policy import balance_change
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.types import PostingKind
from tollhouse.identity.callers import Managing, Operating
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import (
    OTHER_ACCOUNT,
    STORABLE,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    refusals,
)
from tollhouse.storage.database import Database

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Names this posting, so that sending it again changes nothing.",
    ),
]


class AccountQuery(BaseModel):
    """Whose credits are wanted."""

    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)


class CreditsData(ResponseModel):
    """An account's credits; their difference is the balance."""

    total_credits: float
    """Everything that was ever purchased or granted, less refunds, with adjustments."""
    total_usage: float
    """Everything that was ever used."""


class CreditsReply(ResponseModel):
    """The envelope of an account's credits."""

    data: CreditsData
    """The credits."""


class NewCreditsBody(RequestModel):
    """Credits to bring in or to take out."""

    # Stands before the amount, whose sign depends on it.
    kind: Literal["purchase", "grant", "refund", "adjustment"] = "purchase"
    """Paid for, given, a purchase that is paid back, or a correction; only purchases count
    towards the paid tier."""
    amount: PostedAmount
    """How many, exact to nine decimals, as a text or a number. Positive; a refund takes them. An
    adjustment takes them where it is negative."""
    note: Annotated[str, Field(max_length=500), STORABLE] | None = None
    """A remark for the statement; an adjustment needs one."""
    generation_id: Annotated[
        Reference | None, Field(description="The generation that an adjustment is about.")
    ] = None
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None


class PostingData(ResponseModel):
    """An amount that moved."""

    id: str
    """UUID."""
    account_id: str
    """UUID of the account."""
    kind: str
    """purchase, grant, refund or adjustment."""
    amount: float
    """What the balance rose by, in credits; negative where it fell."""
    note: str | None
    """What whoever made the posting wrote about it."""
    generation_id: str | None
    """The generation that an adjustment is about."""
    created_at: SentTime
    """When the balance changed."""


class PostingReply(ResponseModel):
    """The envelope of a posting."""

    data: PostingData
    """The posting."""


@dataclass(frozen=True, slots=True)
class CreditsEndpoints:
    """The endpoints of credits."""

    accounting: AccountingService
    identity: IdentityService
    database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        shown = refusals(400, 401, 403, 404, 500)
        routes.get("/credits", tags=["Credits"], responses=shown)(self.get_credits)
        routes.add_api_route(
            "/credits",
            self.add_credits,
            methods=["POST"],
            tags=["Credits"],
            status_code=201,
            responses=refusals(400, 401, 403, 404, 409, 500),
            route_class_override=ExactNumbers,
        )

    async def get_credits(
        self, who: Managing, query: Annotated[AccountQuery, Query()]
    ) -> CreditsReply:
        """Show what an account has and what it used."""
        async with self.database.reading() as read:
            account_id = await self.identity.home(read, who, query.account_id)
            found = await self.accounting.credits(read, account_id)
        data = CreditsData(
            total_credits=nano_to_float(found.total_nano),
            total_usage=nano_to_float(found.used_nano),
        )
        return CreditsReply(data=data)

    async def add_credits(
        self, who: Operating, body: NewCreditsBody, idempotency_key: IdempotencyKey = None
    ) -> PostingReply:
        """Bring credits into an account, or take them out. Needs an operator's management key.

        A refund is for purchases and no larger than those that were not refunded yet; it may leave
        the balance below zero. An adjustment that names a generation of unknown cost settles it.
        Nothing is ever changed or deleted: to take something back, post its opposite.

        The same request with the same idempotency key gets the same answer and changes nothing;
        another request with it is a conflict.
        """
        async with self.database.writing() as write:
            account_id = await self.identity.home(write, who, body.account_id)
            posting = await self.accounting.add_credits(
                write,
                account_id,
                PostingKind(body.kind),
                body.amount,
                generation_id=body.generation_id,
                idempotency_key=idempotency_key,
                note=body.note,
                actor=who.actor,
            )
        amount = nano_to_float(balance_change(posting))
        return PostingReply(data=PostingData(amount=amount, **asdict(posting)))
