"""An item's line, read: what the pipeline is to be asked for it.

An item says what a request to its endpoint says. The model may be left out; the whole batch is for
one. Who may answer is the batch's wish, narrowed by the item's own.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.batches.policy import MODEL_SUFFIX, preferences
from tollhouse.inference.formats.fields import read_object
from tollhouse.inference.formats.registry import FORMATS, RawRequest
from tollhouse.inference.types import MaxPrice
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from tollhouse.batches.types import Batch
    from tollhouse.identity.types import Subject
    from tollhouse.inference.call import Call
    from tollhouse.inference.steps import Steps
    from tollhouse.inference.types import Preferences
    from tollhouse.kernel.clock import Now

_VERSION: Final = "/v1"
_FURTHER_MODELS: Final = ("models", "fallbacks")
_HEAD: Final = b'{"custom_id":'
_BODY: Final = b',"body":'
_encode = msgspec.json.Encoder().encode
_read_text = msgspec.json.Decoder(str).decode


class Line(NamedTuple):
    """An item as it is stored."""

    custom_id: str
    body: bytes


def read_line(line: bytes) -> Line:
    """Return an item that `chunks.item_line` wrote, its body unread: it may be nested too deeply.

    The name of the second field cannot stand in the first one, where quotes are escaped.
    """
    head, _, rest = line.partition(_BODY)
    return Line(_read_text(head.removeprefix(_HEAD)), rest.removesuffix(b"}"))


async def call_of(  # noqa: PLR0913, PLR0917 - what an item's request needs
    steps: Steps, batch: Batch, model: str, subject: Subject, body: bytes, now: Now
) -> Call:
    """Return what an item asks for.

    Args:
        steps: Read its body, which may be large.
        batch: Its batch.
        model: The catalogue's name of the batch's model.
        subject: Whose request it is.
        body: As it was submitted.
        now: When it is run.

    Raises:
        Invalid: It is no request to the batch's endpoint, wants a stream or another model.
        Forbidden: It holds what a policy does not let pass.
        WorkerGone: It could not be read now.
    """
    whole = await steps.run(subject.account_id, len(body), _with_model, body, model)
    spoken = FORMATS[batch.endpoint.removeprefix(_VERSION)]
    arrived = RawRequest(whole, {}, b"")
    call = await steps.read(spoken, arrived, subject, batch.attribution, now)
    if call.request.stream:
        message = "stream: a request of a batch cannot be streamed; leave it out."
        raise Invalid(message)
    if batch.wish:
        narrowed = _narrowed(call.preferences, preferences(batch.wish))
        call = replace(call, preferences=narrowed)
    return replace(call, in_batch=True)


def _with_model(body: bytes, model: str) -> bytes:
    fields = read_object(body)
    for name in _FURTHER_MODELS:
        if name in fields:
            raise Invalid(f"{name}: a batch has one model; leave it out.")
    named = fields.get("model")
    own = Raw(_encode(model))
    if named == own:
        return body
    if named is not None and named != Raw(_encode(model + MODEL_SUFFIX)):
        raise Invalid(f"model: has to be the batch's, {model!r}, or left out.")
    return _encode({**fields, "model": own})


def _narrowed(own: Preferences, batchs: Preferences) -> Preferences:
    """Return an item's preferences within its batch's: what either of them requires is required."""
    only = own.only
    if batchs.only is not None:
        named = {each.lower() for each in own.only or batchs.only}
        only = tuple(each for each in batchs.only if each.lower() in named)
    return replace(
        own,
        order=own.order or batchs.order,
        only=only,
        ignore=own.ignore + batchs.ignore,
        allow_fallbacks=own.allow_fallbacks and batchs.allow_fallbacks,
        require_parameters=own.require_parameters or batchs.require_parameters,
        deny_data_collection=own.deny_data_collection or batchs.deny_data_collection,
        unsupported_guarantees=own.unsupported_guarantees or batchs.unsupported_guarantees,
        by_price=own.by_price or batchs.by_price,
        max_price=_lower(own.max_price, batchs.max_price),
    )


def _lower(one: MaxPrice | None, other: MaxPrice | None) -> MaxPrice | None:
    """Return the lower of two ceilings, price by price."""
    if one is None or other is None:
        return one or other
    pairs = zip(astuple(one), astuple(other), strict=True)
    given = ([price for price in pair if price is not None] for pair in pairs)
    return MaxPrice(*(min(prices, default=None) for prices in given))
