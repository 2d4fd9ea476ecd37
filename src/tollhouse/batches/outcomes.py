"""What became of an item, as the wire has it: a response or an error, never both. Pure.

    {"id": "batch_req_...", "custom_id": "...", "response": {...} | null, "error": null | {...}}

An error stands in `error` and never in a response: one reply of a shape that clients do not know
makes them refuse the whole batch.

Source: the public gateway's batch result, as its client library reads it.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.accounting.types import Usage
from tollhouse.batches.types import Endpoint, ItemError, Progress
from tollhouse.kernel.clock import unix_seconds
from tollhouse.kernel.envelope import error_object
from tollhouse.kernel.errors import ProviderFailure, Unavailable, Unroutable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.batches.types import Batch, Outcome
    from tollhouse.kernel.errors import Kind, TollhouseError

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

_encode = msgspec.json.Encoder().encode
_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_list = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def generation_id(batch: Batch, number: int) -> str:
    """Return what an item's reply is called, whoever runs it, and however often.

    Source: the public gateway's documentation, `gen-batch-<unix seconds>-<hex digits>`.
    """
    name = sha256(f"{batch.id}/{number}".encode()).hexdigest()[:_DIGITS]
    return f"gen-batch-{unix_seconds(batch.created_at)}-{name}"


def response_line(batch: Batch, number: int, custom_id: str, body: bytes) -> bytes:
    """Return the result of an item that was answered.

    Args:
        batch: Its batch.
        number: Its place in the batch.
        custom_id: What its sender calls it.
        body: The reply, in the format of the batch's endpoint.
    """
    if batch.endpoint is Endpoint.CHAT_COMPLETIONS and b'"tool_calls"' in body:
        body = _with_indices(body)
    if batch.endpoint is Endpoint.MESSAGES:
        body = _with_whole_blocks(body)
    response = {
        "status_code": _OK,
        "request_id": generation_id(batch, number),
        "body": Raw(body),
    }
    return _line(batch, number, custom_id, response, None)


def error_line(batch: Batch, number: int, custom_id: str, error: ItemError) -> bytes:
    """Return the result of an item that failed."""
    shown: dict[str, object] = {
        "type": error.type,
        "message": error.message,
        "param": error.param,
    }
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
    result = {
        "id": f"batch_req_{batch.id.removeprefix('batch_')}_{number}",
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    return _encode(result)


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


def item_error(error: TollhouseError) -> ItemError:
    """Return why an item failed; a bug's text stays inside."""
    message = str(error_object(error)["message"])
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


def passes(error: TollhouseError) -> bool:
    """Tell whether an item that failed so may succeed later.

    That is where the provider is away, busy or broken; not where it refuses the request itself.
    """
    if isinstance(error, ProviderFailure):
        return error.kind in {"upstream", "upstream_overloaded", "upstream_timeout", "rate_limited"}
    return isinstance(error, Unavailable) and not isinstance(error, Unroutable)


def progress(outcomes: Sequence[Outcome], booked: Collection[str]) -> Progress:
    """Return what some items add to their batch.

    Args:
        outcomes: What became of them.
        booked: The ids of those generations that were booked just now.
    """
    records = [each.record for each in outcomes if each.record and each.record.id in booked]
    failed = [each for each in outcomes if each.error is not None]
    unrun = [each for each in failed if each.record is None]
    answered = (each for each in outcomes if each.record is not None and each.error is None)
    first = next(answered, None)
    return Progress(
        completed=len(outcomes) - len(failed),
        failed=len(failed),
        unrun=len(unrun),
        usage=_sum([record.charge.usage for record in records]),
        cost_nano=sum(record.charge.cost_nano for record in records),
        provider=first.record.provider if first and first.record else None,
        error=_told(unrun[0]) if unrun else None,
    )


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in usages),
        cache_read_tokens=sum(usage.cache_read_tokens for usage in usages),
        cache_write_tokens=sum(usage.cache_write_tokens for usage in usages),
        cache_write_1h_tokens=sum(usage.cache_write_1h_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )


def _told(outcome: Outcome) -> str:
    error = outcome.error
    return f"requests[{outcome.number}]: {error.message}" if error else ""
