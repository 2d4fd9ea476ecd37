"""`/credits`: what an account has, bringing credits in and taking them out.

Source: `GET /credits` is the public gateway's; `POST /credits` is ours, for the operator.
"""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import Header
from pydantic import Field

from tollhouse.accounting.endpoints.shared import Credits, Endpoints, PostedAmount
from tollhouse.accounting.policy import balance_change
from tollhouse.accounting.types import PostingKind
from tollhouse.identity.callers import Managing, OfAccount, Operating
from tollhouse.kernel.wire import (
    OTHER_ACCOUNT,
    STORABLE,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    endpoint,
)

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Names this posting, so that sending it again changes nothing.",
    ),
]


class CreditsData(ResponseModel):
    """An account's credits; their difference is the balance."""

    total_credits: Credits = Field(validation_alias="total_nano")
    """Everything that was ever purchased or granted, less refunds, with adjustments."""
    total_usage: Credits = Field(validation_alias="used_nano")
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
    amount: Credits
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


class CreditsEndpoints(Endpoints):
    """The endpoints of credits."""

    @endpoint("GET", "/credits", "Credits", 400, 401, 403, 404, 500)
    async def get_credits(self, who: Managing, account_id: OfAccount = None) -> CreditsReply:
        """Show what an account has and what it used."""
        async with self.reading(who, account_id) as (read, home):
            return CreditsReply.model_validate({"data": await self.accounting.credits(read, home)})

    @endpoint("POST", "/credits", "Credits", 400, 401, 403, 404, 409, 500)
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
            posting = await self.accounting.add_credits(
                write,
                await self.identity.home(write, who, body.account_id),
                PostingKind(body.kind),
                body.amount,
                generation_id=body.generation_id,
                idempotency_key=idempotency_key,
                note=body.note,
                actor=who.actor,
            )
        return PostingReply(data=PostingData(amount=balance_change(posting), **asdict(posting)))
