"""The responses of the format: reads those of providers, and writes those for clients. Pure.

    response ─ output ─┬─ message ─┬─ output_text
                       │           └─ refusal
                       ├─ reasoning: summary and content
                       ├─ function_call
                       └─ custom_tool_call

    TextBlock, RefusalBlock  <->  message        one for consecutive blocks
    ReasoningBlock           <->  reasoning      packed if the format has no field for a part of it
    ToolCall                 <->  function_call, or custom_tool_call for a freeform tool

Before the first byte an error is the common envelope (OpenAI's own code is a string; the public
gateway's clients accept only an integer); after status 200 was sent the stream ends with a failed
response.

Source: https://platform.openai.com/docs/api-reference/responses/object; the public gateway's
clients require every key of it. Its reference for the costs, for `error_type` and for its codes.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.canonical import (
    OPENAI,
    Block,
    CanonicalRequest,
    CanonicalResponse,
    Choice,
    FinishReason,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    pack,
)
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.proofs import wrapped
from tollhouse.inference.formats.provider_errors import read_error
from tollhouse.inference.formats.responses_items import parse_item
from tollhouse.inference.formats.responses_order import whole_items
from tollhouse.inference.formats.responses_tools import CallForm, Typed, call_form
from tollhouse.inference.formats.usage import Counts, find_counts, later, usage_of
from tollhouse.inference.formats.wire import (
    DONE,
    NULL,
    AnyId,
    Fields,
    encoder,
    fields_decoder,
    id_text,
    named_event,
    raw,
    render_costs,
    replace_invalid_text,
    try_decode,
)
from tollhouse.inference.sse import event
from tollhouse.kernel.errors import CONTEXT_LENGTH_EXCEEDED, ProviderRefused, error_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.formats.translation import TranslationSource
    from tollhouse.inference.types import ReplyIdentity
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
        *("invalid_prompt", "invalid_image", "invalid_image_format", "invalid_base64_image"),
        *("invalid_image_url", "invalid_image_mode", "image_too_large", "image_too_small"),
        *("image_parse_error", "image_content_policy_violation", "image_file_too_large"),
        *("image_file_not_found", "unsupported_image_media_type", "empty_image_file"),
        "failed_to_download_image",
    }
)
"""OpenAI's codes of rejected requests, which are forwarded to the client."""


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
    event_fields = try_decode(fields_decoder, data) or {}
    response = try_decode(fields_decoder, event_fields.get("response", NULL))
    return read_error(data if response is None else response.get("error", NULL))


# Responses and events

TERMINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})
"""Events that end a successful stream."""
FAILURE_EVENTS: Final = frozenset({"error", "response.failed", "response.cancelled"})
"""Events that end a failed stream."""
DONE_EVENT: Final = event(DONE)


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


response_decoder: Final = msgspec.json.Decoder(ResponseObject)


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


# Reading


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a complete response that has ended; raises `MalformedResponse` and `ErrorEvent`."""
    try:
        body = replace_invalid_text(body)
        response = response_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedResponse("the reply is no response") from None
    if response.error != NULL:
        raise read_error(response.error)
    if response.output is None:
        raise MalformedResponse("the response has no output")
    blocks: list[Block] = []
    tokens: list[Raw] = []
    try:
        for item in whole_items(map(fields_decoder.decode, response.output)):
            blocks += parse_item(raw(item), tokens)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedResponse("an item of the response is not what its type promises") from None
    calls = any(isinstance(block, ToolCall) for block in blocks)
    finish_reason, native = parse_finish_reason(response, calls=calls)
    choice = Choice(
        blocks=tuple(blocks),
        finish_reason=finish_reason,
        native_finish_reason=native,
        logprobs=chat_logprobs(tokens),
    )
    return CanonicalResponse(
        choices=(choice,),
        usage=usage_of(counts_of(response, body)),
        upstream_id=id_text(response.id),
        service_tier=response.service_tier,
    )


def chat_logprobs(tokens: Sequence[Raw] | None) -> Raw | None:
    """Return tokens as the chat format's `logprobs` object; None if there are none."""
    return raw({"content": tokens, "refusal": None}) if tokens else None


# Writing

JsonObject = dict[str, object]
NO_ARGUMENTS: Final = "{}"
_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "tool_search_call": "tsc",
    "shell_call": "sh",
    "local_shell_call": "lsh",
    "apply_patch_call": "apc",
}
_logprobs = msgspec.json.Decoder(dict[str, list[msgspec.Raw] | None])
_string = msgspec.json.Decoder(str)


class OutputOptions(NamedTuple):
    """The options of a request that affect how its output is rendered."""

    forms: Mapping[str, CallForm]
    """How the calls of tools are shown that are no plain functions, by name."""
    summarizes: bool
    """Whether all reasoning is shown as a summary: clients that request one show nothing else."""

    def form(self, name: str) -> CallForm:
        """Return how the calls of a tool are shown."""
        return self.forms.get(name) or call_form(name, None, freeform=False)


def output_options(prompt: CanonicalRequest) -> OutputOptions:
    """Return the options of a request."""
    thinking = prompt.thinking
    return OutputOptions(
        {
            tool.name: call_form(tool.name, tool.own, freeform=tool.freeform)
            for tool in prompt.tools
            if tool.freeform or tool.own is not None
        },
        summarizes=thinking is not None and thinking.summary not in {None, "none"},
    )


def item_id(identity: ReplyIdentity, kind: str, position: int) -> str:
    """Return an item's id, derived from the response's: the same response has the same ids."""
    return f"{_PREFIXES[kind]}_{identity.id}_{position}"


def _render_items(
    choice: Choice, identity: ReplyIdentity, options: OutputOptions
) -> list[JsonObject]:
    """Return the output of a response; the first text part has the log-probabilities of all."""
    items: list[JsonObject] = []
    tokens = text_logprobs(choice.logprobs)
    for is_message, run in groupby(
        choice.blocks, lambda block: isinstance(block, (TextBlock, RefusalBlock))
    ):
        if is_message:
            parts: list[JsonObject] = []
            for block in run:
                parts.append(content_part(block, tokens))
                tokens = () if isinstance(block, TextBlock) else tokens
            items.append(message_item(item_id(identity, "message", len(items)), parts))
            continue
        for block in run:
            if isinstance(block, (ReasoningBlock, ToolCall)):
                items.append(_item(block, identity, len(items), options))
    if items and choice.finish_reason in INCOMPLETE:
        items[-1]["status"] = "incomplete"
    return items


def _item(
    block: ReasoningBlock | ToolCall, identity: ReplyIdentity, position: int, options: OutputOptions
) -> JsonObject:
    if isinstance(block, ReasoningBlock):
        native = block.id if block.format == OPENAI else None
        id_ = native or item_id(identity, "reasoning", position)
        is_summary = block.is_summary or options.summarizes
        return reasoning_item(block, id_, identity.maker, is_summary=is_summary)
    form = options.form(block.name)
    return call_item(block, form, item_id(identity, form.kind, position))


def content_part(block: Block, tokens: Sequence[Raw] = ()) -> JsonObject:
    """Return a message part: text, with its tokens' log-probabilities, or a refusal."""
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    text = block.text if isinstance(block, TextBlock) else ""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": tokens}


def message_item(id_: str, parts: Sequence[JsonObject]) -> JsonObject:
    """Return a message item."""
    return {
        "id": id_,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": parts,
    }


def call_item(call: ToolCall, form: CallForm, id_: str) -> JsonObject:
    """Return the item of a call."""
    item: JsonObject = {
        "id": id_,
        "type": form.kind,
        "status": "completed",
        "call_id": call.id,
        **form.named,
    }
    if form.run is not None:
        return {**item, form.run.field: form.run.shown(call.arguments)}
    if form.kind == "custom_tool_call":
        return {**item, "input": freeform_input(call.arguments)}
    return {**item, "arguments": function_arguments(call.arguments)}


def function_arguments(arguments: str) -> str:
    """Return a call's arguments; `{}` if they are empty, as clients decode JSON."""
    return arguments if arguments.strip() else arguments + NO_ARGUMENTS


def freeform_input(arguments: str) -> str:
    """Return the text for a freeform tool: the field `input`, or the arguments as written."""
    fields = try_decode(fields_decoder, arguments) or {}
    text = try_decode(_string, fields.get("input", NULL))
    return arguments if text is None else text


def reasoning_item(block: ReasoningBlock, id_: str, maker: str, *, is_summary: bool) -> JsonObject:
    """Return a reasoning item, with its signature or encrypted content.

    OpenAI's encrypted reasoning is passed on unchanged, under its own id. Any other block is packed
    as a whole, because clients may send the item back without its text.
    """
    parts = [reasoning_part(block.text, is_summary=is_summary)] if block.text else []
    return {
        "id": id_,
        "type": "reasoning",
        "status": "completed",
        "summary": parts if is_summary else [],
        **({} if is_summary or not parts else {"content": parts}),
        "encrypted_content": _proof(block, id_, maker),
    }


def _proof(block: ReasoningBlock, id_: str, maker: str) -> str | None:
    is_native = block.format == OPENAI and block.signature is None
    if is_native and (block.encrypted is None or block.id == id_):
        return None if block.encrypted is None else wrapped(block.encrypted, maker)
    return pack(block, maker)


def reasoning_part(text: str, *, is_summary: bool) -> JsonObject:
    """Return a text part of a reasoning item."""
    return {"type": "summary_text" if is_summary else "reasoning_text", "text": text}


def text_logprobs(logprobs: Raw | None) -> Sequence[Raw]:
    """Return the tokens of the chat format's `logprobs` object."""
    tokens = None if logprobs is None else try_decode(_logprobs, logprobs)
    return (tokens or {}).get("content") or ()


# The object before any output: the identity and the request's parameters

_ECHOED: Final[Mapping[str, Raw]] = {
    "instructions": NULL,
    "max_output_tokens": NULL,
    "max_tool_calls": NULL,
    "metadata": raw({}),
    "temperature": NULL,
    "top_p": NULL,
    "presence_penalty": NULL,
    "frequency_penalty": NULL,
    "parallel_tool_calls": Raw(b"true"),
    "prompt_cache_key": NULL,
    "reasoning": raw({"effort": None, "summary": None}),
    "safety_identifier": NULL,
    "service_tier": NULL,
    "text": raw({"format": {"type": "text"}}),
    "truncation": raw("disabled"),
    "user": NULL,
}
"""Fields that repeat the request's value, with the format's defaults."""
_NO_TOOLS: Final = Raw(b"[]")
_tools = msgspec.json.Decoder(list[Fields])


def blank_response(request: ClientRequest, identity: ReplyIdentity) -> dict[str, object]:
    """Return a response without output, with every key that clients require."""
    given = request.fields
    echoed = {name: value for name, value in given.items() if name in _ECHOED and value != NULL}
    return {
        "id": identity.id,
        "object": "response",
        "created_at": identity.created,
        "completed_at": None,
        "model": identity.model,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        **_ECHOED,
        **echoed,
        "tool_choice": _echoed_choice(given.get("tool_choice", NULL)),
        "tools": _echoed_tools(given.get("tools", NULL)),
        "background": False,
        "store": False,
        "previous_response_id": None,
    }


def _echoed_choice(given: Raw) -> object:
    """Return the tool choice; the public gateway's clients accept no custom tool here."""
    if given == NULL:
        return "auto"
    choice = try_decode(fields_decoder, given)
    if choice is None:
        return given
    return {**choice, "type": "function"} if choice.get("type") == raw("custom") else choice


def _echoed_tools(given: Raw) -> Raw:
    """Return the tools as raw JSON: a stream renders them three times, and there may be many."""
    if given == NULL:
        return _NO_TOOLS
    # The provider would have rejected anything else; a failed stream must still be rendered.
    return raw([_echoed_tool(tool) for tool in try_decode(_tools, given) or ()])


def _echoed_tool(tool: Fields) -> Fields:
    if tool.get("type") == raw("function"):
        return {"parameters": NULL, "strict": Raw(b"false"), **tool}
    return tool


# Complete responses

INCOMPLETE: Final[Mapping[FinishReason, str]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""The `incomplete_details.reason` for each finish reason of an incomplete response."""


def render_response(
    source: TranslationSource, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
) -> bytes:
    """Return the client's body, with the first choice only."""
    choice = reply.choices[0]
    items = _render_items(choice, identity, output_options(source.prompt))
    blank = blank_response(source.request, identity)
    if reply.service_tier is not None:
        blank["service_tier"] = reply.service_tier
    text = "".join(block.text for block in choice.blocks if isinstance(block, TextBlock))
    ended = {**blank, "output": items, "output_text": text}
    return encoder.encode(finished_response(ended, choice.finish_reason, charge))


def finished_response(
    response: JsonObject, finish_reason: FinishReason, charge: Charge
) -> JsonObject:
    """Return a response object with its final status and its usage."""
    ended: JsonObject = {**response, "usage": render_usage(charge)}
    if finish_reason == "error":
        message = "The provider ended its reply with an error."
        return failed_response(ended, "provider_unavailable", message)
    reason = INCOMPLETE.get(finish_reason)
    if reason is None:
        return {**ended, "status": "completed"}
    return {**ended, "status": "incomplete", "incomplete_details": {"reason": reason}}
