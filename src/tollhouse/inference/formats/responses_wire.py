"""The parts of the responses format that the gateway decodes or writes; the rest stays raw.

    response ─ output ─┬─ message ─┬─ output_text
                       │           └─ refusal
                       ├─ reasoning: summary and content
                       ├─ function_call
                       └─ custom_tool_call

Before the first byte an error is the common envelope (OpenAI's own code is a string; the public
gateway's clients accept only an integer); after status 200 was sent the stream ends with a failed
response.

Source: https://platform.openai.com/docs/api-reference/responses/object, and the public gateway's
reference for the costs, for `error_type` and for its table of codes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import (
    ErrorEvent,
    MalformedResponse,
)
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.provider_errors import read_error
from tollhouse.inference.formats.responses_tools import Typed
from tollhouse.inference.formats.usage import Counts, find_counts, later
from tollhouse.inference.formats.wire import (
    DONE,
    NULL,
    AnyId,
    Fields,
    encoder,
    fields_decoder,
    named_event,
    render_costs,
    try_decode,
)
from tollhouse.inference.sse import event
from tollhouse.kernel.errors import CONTEXT_LENGTH_EXCEEDED, ProviderRefused, error_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.types import FinishReason
    from tollhouse.kernel.errors import TollhouseError


_CODES: Final[Mapping[str, str]] = {
    CONTEXT_LENGTH_EXCEEDED: CONTEXT_LENGTH_EXCEEDED,
    "invalid_request": "invalid_prompt",
    "rate_limit_exceeded": "rate_limit_exceeded",
    "content_policy_violation": "image_content_policy_violation",
}
_DEFAULT_CODE: Final = "server_error"
_FORWARDED_CODES: Final = frozenset(
    {
        "invalid_prompt",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "invalid_image_mode",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "image_file_too_large",
        "image_file_not_found",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
    }
)
"""OpenAI's codes of rejected requests, which are forwarded to the client."""


class _FailedResponse(msgspec.Struct):
    error: msgspec.Raw = NULL


class _Failure(msgspec.Struct):
    response: _FailedResponse | None = None


_failure = msgspec.json.Decoder(_Failure)


def failed_response(
    response: Mapping[str, object], error_type: str, message: object, code: str | None = None
) -> dict[str, object]:
    """Return a response so far as a failed one.

    The format's code is derived from the gateway's, `error_type`, unless it is given.
    """
    return {
        **response,
        "status": "failed",
        "error": {"code": code or _CODES.get(error_type, _DEFAULT_CODE), "message": message},
        "error_type": error_type,
    }


def interrupted_response(
    response: Mapping[str, object], error: TollhouseError
) -> dict[str, object]:
    """Return the response of a stream that an error ended; a bug's message is masked."""
    given = error.provider_code if isinstance(error, ProviderRefused) else None
    code = given if isinstance(given, str) and given in _FORWARDED_CODES else None
    return failed_response(response, error.code, error_object(error)["message"], code)


def parse_failure_event(data: bytes) -> ErrorEvent:
    """Parse the event that ends a failed stream: its own error, or its response's."""
    failure = try_decode(_failure, data)
    nested = failure is not None and failure.response
    return read_error(nested.error if nested else data)


# Responses and events

TERMINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})
"""Events that end a successful stream."""
FAILURE_EVENTS: Final = frozenset({"error", "response.failed", "response.cancelled"})
"""Events that end a failed stream."""
DONE_EVENT: Final = event(DONE)


class ResponsesPart(msgspec.Struct):
    """A part of a message's or a reasoning item's content."""

    type: str | None = None
    text: str = ""
    refusal: str = ""
    logprobs: list[Raw] | None = None


class ResponsesMessage(msgspec.Struct):
    """An item of type `message`."""

    content: list[ResponsesPart] = []


class ResponsesCall(msgspec.Struct):
    """An item of type `function_call` or `custom_tool_call`."""

    name: str
    call_id: str
    arguments: str = ""
    input: str = ""


class ResponsesReasoningItem(msgspec.Struct):
    """An item of type `reasoning`."""

    id: str | None = None
    summary: list[ResponsesPart] | None = None
    content: list[ResponsesPart] | None = None
    encrypted_content: str | None = None


class _IncompleteDetails(msgspec.Struct):
    reason: str | None = None


class ResponseObject(msgspec.Struct):
    """A response object, as far as the gateway decodes it."""

    output: list[Raw] | None = None
    id: AnyId = None
    status: str | None = None
    error: Raw = NULL
    incomplete_details: _IncompleteDetails | None = None
    service_tier: str | None = None


message_decoder: Final = msgspec.json.Decoder(ResponsesMessage)
call_decoder: Final = msgspec.json.Decoder(ResponsesCall)
reasoning_decoder: Final = msgspec.json.Decoder(ResponsesReasoningItem)
response_decoder: Final = msgspec.json.Decoder(ResponseObject)

CALL_TYPES: Final = frozenset({"function_call", "custom_tool_call"})


def output_items(response: ResponseObject) -> list[Raw]:
    """Return a response's output; raises `MalformedResponse` if there is none."""
    if response.output is None:
        raise MalformedResponse("the response has no output")
    return response.output


def parse_finish_reason(response: ResponseObject, *, calls: bool) -> tuple[FinishReason, str]:
    """Return a response's finish reason, normalized and as the provider reported it.

    Raises `MalformedResponse` if the response has not ended, `ErrorEvent` if it failed.
    """
    status = response.status or "completed"
    if status in {"failed", "cancelled"} or response.error != NULL:
        raise ErrorEvent(status, None) if response.error == NULL else read_error(response.error)
    if status == "completed":
        return ("tool_calls" if calls else "stop"), status
    if status != "incomplete":
        raise MalformedResponse("the response has not ended")
    reason = response.incomplete_details.reason if response.incomplete_details else None
    meant = normalize_finish_reason(reason)
    return (meant if meant in {"content_filter", "error"} else "length"), reason or status


class NumberedEventWriter:
    """Writes the events of one stream with consecutive sequence numbers."""

    def __init__(self) -> None:
        self.count = 0

    def event(self, kind: str, fields: Mapping[str, object]) -> bytes:
        """Return the next event, with its type and its sequence number."""
        return named_event(
            kind, encoder.encode({"type": kind, **fields, "sequence_number": self.next_number()})
        )

    def next_number(self) -> int:
        """Return the number of the next event, which is another one from now on."""
        self.count += 1
        return self.count - 1


# Usage


def counts_of(response: ResponseObject, given: Raw | bytes, beside: Fields | None = None) -> Counts:
    """Return what a response used; some servers say it in the event, beside the response.

    It is given as it was decoded, and as it came. Searches of the web and of files are items of the
    output; to open a page costs nothing.

    Source: https://platform.openai.com/docs/guides/tools-web-search, "output and citations", and
    tools-file-search.
    """
    counts = later(find_counts(fields_decoder.decode(given)), find_counts(beside or {}))
    items = [item for item in response.output or () if _SEARCH in memoryview(item).tobytes()]
    searches = (each.counts_as for item in items if (each := try_decode(_search, item)))
    found = Counter(name for name in searches if name is not None)
    return later(counts, found) if found else counts


class _Search(msgspec.Struct):
    type: str | None = None
    action: Typed | None = None

    @property
    def counts_as(self) -> str | None:
        if self.type == "file_search_call":
            return "file_searches"
        is_search = self.action is None or self.action.type in {None, "search"}
        return "searches" if self.type == "web_search_call" and is_search else None


_SEARCH: Final = b"_search_call"
_search: Final = msgspec.json.Decoder(_Search)


def render_usage(charge: Charge) -> dict[str, object]:
    """Return the `usage` object of a response."""
    usage = charge.usage
    input_tokens = usage.prompt_tokens
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": input_tokens + usage.output_tokens,
        **_costs(charge),
    }


def _costs(charge: Charge) -> dict[str, object]:
    """Return the cost fields; this format has its own names for the details."""
    costs = render_costs(charge)
    parts = costs.pop("cost_details", None)
    if isinstance(parts, dict):
        costs["cost_details"] = {
            "upstream_inference_cost": parts["upstream_inference_cost"],
            "upstream_inference_input_cost": parts["upstream_inference_prompt_cost"],
            "upstream_inference_output_cost": parts["upstream_inference_completions_cost"],
        }
    return costs
