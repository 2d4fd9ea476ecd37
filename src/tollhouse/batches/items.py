"""An item of a batch: the request that it stands for, and its result on the wire. Pure.

An item says what a request to its endpoint says, but may leave the model out. Who may answer is
what the batch prefers, narrowed by the item's own preferences. Its result is

    {"id": "batch_req_...", "custom_id": "...", "response": {...} | null, "error": null | {...}}

An error never stands in a response: a reply of an unknown shape makes clients refuse the batch.

Source: the public gateway's batch result, as its client library reads it.
"""

from __future__ import annotations

import re
from dataclasses import astuple, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.accounting.types import Usage
from tollhouse.batches.policy import MODEL_SUFFIX, preferences
from tollhouse.batches.types import Batch, BatchEndpoint, BatchProgress, ItemError, ItemResult
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.formats.wire import read_object
from tollhouse.inference.request import InferenceRequest
from tollhouse.inference.types import MaxPrice, Preferences
from tollhouse.kernel.clock import Now, unix_seconds
from tollhouse.kernel.errors import Invalid, ProviderFailure, Unavailable, Unroutable, error_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.identity.types import Subject
    from tollhouse.inference.steps import Steps
    from tollhouse.kernel.errors import Kind, TollhouseError

_VERSION: Final = "/v1"
_FURTHER_MODELS: Final = ("models", "fallbacks")
_HEAD: Final = b'{"custom_id":'
_BODY: Final = b',"body":'
_encode = msgspec.json.Encoder().encode
_read_text = msgspec.json.Decoder(str).decode


class StoredItem(NamedTuple):
    """An item as it is stored."""

    custom_id: str
    body: bytes


def read_line(line: bytes) -> StoredItem:
    """Return an item that `chunks.item_line` wrote, its body unread: it may be nested too deeply.

    The name of the second field cannot stand in the first one, where quotes are escaped.
    """
    head, _, rest = line.partition(_BODY)
    return StoredItem(_read_text(head.removeprefix(_HEAD)), rest.removesuffix(b"}"))


async def call_of(  # noqa: PLR0913, PLR0917 - what an item's request needs
    steps: Steps, batch: Batch, model: str, subject: Subject, body: bytes, now: Now
) -> InferenceRequest:
    """Return the request that an item's body is; `model` is the catalogue's name of the batch's.

    Raises:
        Invalid: It is no request to the batch's endpoint, wants a stream or another model.
        Forbidden: It holds what a policy does not let pass.
        WorkerGone: It could not be read now.
    """
    whole = await steps.run(subject.account_id, len(body), _with_model, body, model)
    spoken = FORMATS[batch.endpoint.removeprefix(_VERSION)]
    request = InferenceRequest(
        spoken, whole, {}, b"", subject, batch.attribution, now, in_batch=True
    )
    request.only_own_keys = batch.only_own_keys
    await steps.parse(request)
    if request.parsed.stream:
        raise Invalid("stream: a request of a batch cannot be streamed; leave it out.")
    if batch.preferences:
        request.preferences = _narrowed(request.preferences, preferences(batch.preferences))
    return request


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
        zdr=own.zdr or batchs.zdr,
        by_price=own.by_price or batchs.by_price,
        max_price=_lower(own.max_price, batchs.max_price),
    )


def _lower(one: MaxPrice | None, other: MaxPrice | None) -> MaxPrice | None:
    if one is None or other is None:
        return one or other
    pairs = zip(astuple(one), astuple(other), strict=True)
    given = ([price for price in pair if price is not None] for pair in pairs)
    return MaxPrice(*(min(prices, default=None) for prices in given))


_COUNTS: Final = tuple(Usage().tokens)
"""What a record calls its tokens, too."""
_DIGITS: Final = 20
_OK: Final = 200
_NULL: Final = Raw(b"null")
_PATH: Final = re.compile(r"([A-Za-z_][\w.\[\]{}-]{0,200}): ")
"""How the message of an invalid request begins: with the field that is wrong."""
_TYPES: Final[Mapping[Kind, str]] = {
    "invalid": "invalid_request_error",
    "payload_too_large": "invalid_request_error",
    "unprocessable": "invalid_request_error",
    "not_found": "not_found_error",
    "forbidden": "permission_error",
    "payment_required": "billing_error",
    "rate_limited": "rate_limit_error",
    "upstream_overloaded": "overloaded_error",
    "upstream_timeout": "timeout_error",
}
_OTHER_TYPE: Final = "api_error"
_CLOSED: Final[Mapping[str, str]] = {
    "batch_expired": "The batch's time was over before this request was run.",
    "batch_cancelled": "The batch was cancelled before this request was run.",
}

_OF_BLOCKS: Final[Mapping[bytes, tuple[str, Raw]]] = {
    b'"text"': ("citations", _NULL),
    b'"tool_use"': ("caller", Raw(b'{"type":"direct"}')),
}
"""Type of a message's block -> a field that providers leave out, and what that means."""

_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_list = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def generation_id(batch: Batch, number: int) -> str:
    """Return what an item's reply is called, whoever runs it, and however often.

    Source: the public gateway's documentation, `gen-batch-<unix seconds>-<hex digits>`.
    """
    name = sha256(f"{batch.id}/{number}".encode()).hexdigest()[:_DIGITS]
    return f"gen-batch-{unix_seconds(batch.created_at)}-{name}"


def response_line(batch: Batch, number: int, custom_id: str, body: bytes) -> bytes:
    """Return the result of an item whose answer, in its endpoint's format, is this body."""
    if batch.endpoint is BatchEndpoint.CHAT_COMPLETIONS and b'"tool_calls"' in body:
        body = _with_indices(body)
    if batch.endpoint is BatchEndpoint.MESSAGES:
        body = _with_whole_blocks(body)
    request_id = generation_id(batch, number)
    response = {"status_code": _OK, "request_id": request_id, "body": Raw(body)}
    return _line(batch, number, custom_id, response, None)


def error_line(batch: Batch, number: int, custom_id: str, error: ItemError) -> bytes:
    """Return the result of an item that failed."""
    shown = {"type": error.type, "message": error.message, "param": error.param}
    if error.error_type is not None:
        shown["error_type"] = error.error_type
    return _line(batch, number, custom_id, None, shown)


def _line(
    batch: Batch,
    number: int,
    custom_id: str,
    response: Mapping[str, object] | None,
    error: Mapping[str, object] | None,
) -> bytes:
    name = f"batch_req_{batch.id.removeprefix('batch_')}_{number}"
    return _encode({"id": name, "custom_id": custom_id, "response": response, "error": error})


def _with_indices(body: bytes) -> bytes:
    """Return a chat whose tool calls say their places, as a batch's must."""
    reply = _read_fields(body)
    choices = _read_list(reply["choices"])
    for choice in choices:
        message = _read_fields(choice["message"])
        if message.get("tool_calls", _NULL) != _NULL:
            calls = _read_list(message["tool_calls"])
            numbered = [{"index": Raw(str(at).encode()), **call} for at, call in enumerate(calls)]
            message["tool_calls"] = Raw(_encode(numbered))
            choice["message"] = Raw(_encode(message))
    reply["choices"] = Raw(_encode(choices))
    return _encode(reply)


def _with_whole_blocks(body: bytes) -> bytes:
    """Return a message whose blocks have every field: clients of batches take others for unknown.

    Source: the public gateway's client library for batches.
    """
    reply = _read_fields(body)
    blocks = _read_list(reply["content"])
    for block in blocks:
        missing = _OF_BLOCKS.get(bytes(block.get("type", _NULL)))
        if missing is not None:
            block.setdefault(*missing)
    reply["content"] = Raw(_encode(blocks))
    return _encode(reply)


def item_error(error: TollhouseError, tries: int = 0) -> ItemError:
    """Return why an item failed, after so many tries in vain; a bug's text stays inside."""
    message = str(error_object(error)["message"])
    if tries:
        status = getattr(error, "provider_status", None)
        message = f"failed after {tries} tries: {f'{status} ' if status else ''}{message}"
    field = _PATH.match(message) if error.kind == "invalid" else None
    return ItemError(
        type=_TYPES.get(error.kind, _OTHER_TYPE),
        message=message,
        param=None if field is None else field[1],
        error_type=error.code,
    )


def closing_error(word: str) -> ItemError:
    """Return why an item was not begun: `batch_expired` or `batch_cancelled`."""
    return ItemError(type=word, message=_CLOSED[word])


def is_retryable(error: TollhouseError) -> bool:
    """Tell whether an item may succeed later: the provider is away, busy or broken."""
    if isinstance(error, ProviderFailure):
        return error.kind in {"upstream", "upstream_overloaded", "upstream_timeout", "rate_limited"}
    return isinstance(error, Unavailable) and not isinstance(error, Unroutable)


def progress_of(outcomes: Sequence[ItemResult], booked: Collection[str]) -> BatchProgress:
    """Return what some items add to their batch; `booked` are generations booked just now."""
    records = [each.record for each in outcomes if each.record and each.record.id in booked]
    failed = [each for each in outcomes if each.error is not None]
    unrun = [each for each in failed if each.record is None]
    answered = (each for each in outcomes if each.record is not None and each.error is None)
    first = next(answered, None)
    return BatchProgress(
        completed=len(outcomes) - len(failed),
        failed=len(failed),
        unrun=len(unrun),
        usage=Usage(*(sum(getattr(each, name) for each in records) for name in _COUNTS)),
        cost_nano=sum(record.cost_nano for record in records),
        own_nano=sum(record.spend.byok_usage_nano for record in records),
        is_byok=any(record.is_byok for record in records),
        provider=first.record.provider if first and first.record else None,
        error=_told(unrun[0]) if unrun else None,
    )


def _told(outcome: ItemResult) -> str:
    error = outcome.error
    return f"requests[{outcome.number}]: {error.message}" if error else ""
