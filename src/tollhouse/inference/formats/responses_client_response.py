"""Renders a canonical response as a response object. Pure.

    TextBlock, RefusalBlock  ->  message         one for consecutive blocks
    ReasoningBlock           ->  reasoning       packed if the format has no field for a part of it
    ToolCall                 ->  function_call, or custom_tool_call for a freeform tool

Source: https://platform.openai.com/docs/api-reference/responses/object; the public gateway's
clients require every key of it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.types import (
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
from tollhouse.inference.formats.proofs import wrapped
from tollhouse.inference.formats.responses_tools import CallForm, call_form
from tollhouse.inference.formats.responses_wire import failed_response, render_usage
from tollhouse.inference.formats.wire import NULL, Fields, encoder, fields_decoder, raw, try_decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.formats.canonical.translation import TranslationSource
    from tollhouse.inference.types import ReplyIdentity


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
_freeform = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The options of a request that affect how its output is rendered."""

    forms: Mapping[str, CallForm] = dataclasses.field(default_factory=dict[str, CallForm])
    """How the calls of tools are shown that are no plain functions, by name."""
    summarizes: bool = False
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
    try:
        return _text.decode(_freeform.decode(arguments)["input"])
    except (msgspec.DecodeError, RecursionError, KeyError):
        return arguments


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
