"""Reasoning in the chat format: its parameters, its fields, and whose it is. Pure.

    reasoning_details:  reasoning.text       {text, signature}   reasoning, with its signature
                        reasoning.summary    {summary}           a summary of the reasoning
                        reasoning.encrypted  {data}              only the provider can read it

A canonical block is one detail, or two if it has both a readable and an encrypted part.
`reasoning` holds the same text in one string.

A provider sends reasoning in one of several fields, and some require it back in the same one.
A client's message therefore tells who made it, and in which field it came: the first detail of a
reply that had none has that, packed, as its signature.

Source: the public gateway's reference, "preserving reasoning"; https://api-docs.deepseek.com/guides/thinking_mode
(`reasoning_content`), https://docs.mistral.ai/capabilities/reasoning (parts of type `thinking`) and
https://ai.google.dev/gemini-api/docs/openai (`extra_content`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal, Optional

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from tollhouse.inference.formats.canonical import (
    ANTHROPIC,
    ReasoningBlock,
    ReasoningParameter,
    pack,
    unpack,
    usual_effort,
)
from tollhouse.inference.formats.proofs import (
    IN_CALLS,
    IN_DETAILS,
    IN_LITELLM,
    is_marked,
    unsigned,
    unwrap_all,
    unwrapped,
    wrap_all,
    wrapped,
)
from tollhouse.inference.formats.tools import LONGEST_CALL_ID, short_id
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    begins_list,
    encoder,
    fields_decoder,
    raw,
    read_field,
    text_decoder,
    try_decode,
    without,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tollhouse.inference.formats.canonical import ReasoningField, ReasoningSignature
    from tollhouse.inference.types import Endpoint

_FALSE: Final = Raw(b"false")
_EFFORT_ALONE: Final = frozenset({"effort", "exclude", "summary"})
"""Of `reasoning`, what `reasoning_effort` says or the gateway does itself."""
REASONING_FIELDS: Final = frozenset({"reasoning", "reasoning_content", "reasoning_details"})
_BESIDE: Final = ("extra_content", "provider_specific_fields", "thinking_blocks")
"""Fields of a message that go back as they came."""
_OWN: Final = re.compile(
    rb'"reasoning(?:_content|_details)?"|"(?:tool_call_)?id"\s*:\s*"[^"]{%d}'
    % (LONGEST_CALL_ID + 1)
)
"""Where a message of a body may have one of them, or too long an id."""


# Parameters


class _Wanted(Struct):
    effort: str | None = None
    exclude: bool | None = None


_wanted: Final = msgspec.json.Decoder(_Wanted | None)
_parameter: Final = msgspec.json.Decoder(ReasoningParameter | None)


def shows_reasoning(fields: Fields) -> bool:
    """Return whether a request wants to see the reasoning."""
    if fields.get("include_reasoning") == _FALSE:
        return False
    # What is not of the type is passed on unchanged: the provider reports the error.
    given = try_decode(_wanted, fields["reasoning"]) if "reasoning" in fields else None
    return given is None or not given.exclude


def check_efforts(fields: Fields) -> None:
    """Raise `Invalid` if a request has two efforts that differ."""
    given = read_field(_wanted, fields, "reasoning", "an object whose effort is a string")
    effort = read_field(text_decoder, fields, "reasoning_effort", "a string")
    if given is not None and given.effort is not None and effort not in {None, given.effort}:
        raise Invalid("reasoning_effort: contradicts reasoning.effort; give one of them.")


def rename_effort(accepted: Fields, given: Raw, rejected: Collection[str]) -> None:
    """Say the effort in OpenAI's field; what that field cannot say stays in `reasoning`, too."""
    # A provider would reject what is not of the type; nothing else depends on it.
    reasoning = try_decode(_parameter, given)
    effort = None if reasoning is None else usual_effort(reasoning.options())
    if effort is None or "reasoning_effort" in rejected:
        return
    if accepted.get("reasoning_effort", NULL) == NULL:
        accepted["reasoning_effort"] = raw(effort)
    if (try_decode(fields_decoder, given) or {}).keys() <= _EFFORT_ALONE:
        accepted.pop("reasoning", None)


# Details


class ReasoningDetail(Struct):
    """An item of `reasoning_details`."""

    type: str = ""
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    signature: str | None = None
    id: str | None = None
    format: str | None = None


def parse_details(
    details: Iterable[ReasoningDetail], *, of_client: bool = False
) -> list[ReasoningBlock]:
    """Return the blocks of details; an empty detail gives none. A client's may be marked."""
    blocks: list[ReasoningBlock] = []
    for each in details:
        text, is_summary = each.text or each.summary or "", each.type == "reasoning.summary"
        if not (text or each.signature or each.data):
            continue
        block = ReasoningBlock(text, is_summary, each.signature, each.data, each.id, each.format)
        if of_client:
            block = _unmarked(block)
        before = blocks[-1] if blocks else None
        if before is not None and before.is_summary and not before.encrypted and block.encrypted:
            block = replace(block, text=before.text, is_summary=True)
            blocks.pop()
        blocks.append(block)
    return blocks


def _unmarked(block: ReasoningBlock) -> ReasoningBlock:
    if block.signature and (packed := unpack(block.signature)) is not None:
        return replace(packed, text=block.text)
    signature, encrypted = unwrapped(block.signature or ""), unwrapped(block.encrypted or "")
    return replace(
        block,
        signature=signature.value or None,
        encrypted=encrypted.value or None,
        maker=signature.maker or encrypted.maker,
    )


def render_details(blocks: Iterable[ReasoningBlock], maker: str = "") -> list[dict[str, object]]:
    """Return the `reasoning_details` of blocks; for a client with the mark of their maker."""
    found = [detail for block in blocks for detail in _details(block, maker)]
    return [{**detail, "index": index} for index, detail in enumerate(found)]


def _filled(message: Fields, maker: str, *, tells_field: bool) -> Fields:
    """Return a message or a delta with its reasoning in all fields that clients read.

    Many servers send only `reasoning_content`, which is kept, or only `reasoning`, or parts of the
    content, of which the text is left there. A maker is told, with the field that it used. Raises
    `msgspec.DecodeError` if the reasoning is not a string.
    """
    field: ReasoningField | None = None
    text, signature = "", None
    split = split_thinking(message.get("content", NULL))
    if split is not None:
        said, thoughts = split
        text, signature = thoughts.text, thoughts.signature
        message, field = {**message, "content": raw(said)}, "thinking"
    for name in () if text else _TEXT_FIELDS:
        if given := text_decoder.decode(message.get(name, NULL)):
            text, field = text or given, name
    if not text:
        return message
    filled = {**message, "reasoning": raw(text)}
    if message.get("reasoning_details", NULL) == NULL:
        block = ReasoningBlock(field=field, signature=signature)
        marks = bool(maker) and (tells_field or signature is not None)
        mark = pack(block, maker) if marks else None
        [detail] = render_details([ReasoningBlock(text, signature=mark)])
        if maker and mark is None:
            # Clients that join details would take null for the mark.
            del detail["signature"]
        filled["reasoning_details"] = raw([detail])
    return filled


_TEXT_FIELDS: Final[tuple[ReasoningField, ...]] = ("reasoning", "reasoning_content")


class ContentPart(Struct):
    """A part of a provider's content: text, or thoughts of a model of Mistral.

    Source: https://docs.mistral.ai/capabilities/reasoning
    """

    type: str | None = None
    text: str | None = None
    thinking: str | list[ContentPart] | None = None
    signature: str | None = None
    data: str | None = None

    @property
    def thoughts(self) -> str:
        """The text of thoughts."""
        if isinstance(self.thinking, list):
            return "".join(part.text or "" for part in self.thinking)
        return self.thinking or ""


THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
"""Parts of a message of the model, as Mistral and Anthropic write them."""


def thinking_in(parts: Iterable[ContentPart]) -> list[ReasoningBlock]:
    """Return the thoughts among parts of a content, as one block."""
    thoughts = [part for part in parts if part.thinking]
    text = "".join(part.thoughts for part in thoughts)
    signature = next((part.signature for part in reversed(thoughts) if part.signature), None)
    return [ReasoningBlock(text, signature=signature, field="thinking")] if text else []


def parse_thinking_blocks(
    parts: Iterable[ContentPart], *, of_client: bool = False
) -> list[ReasoningBlock]:
    """Return the blocks of `thinking_blocks`, in which LiteLLM has those of Anthropic's models.

    Source: https://docs.litellm.ai/docs/reasoning_content
    """
    field = None if of_client else "thinking_blocks"
    blocks = [
        ReasoningBlock(
            part.thoughts,
            signature=part.signature or None,
            encrypted=part.data or None,
            format=ANTHROPIC if of_client else None,
            field=field,
        )
        for part in parts
        if part.thoughts or part.signature or part.data
    ]
    return [_unmarked(block) for block in blocks] if of_client else blocks


_parts = msgspec.json.Decoder(list[ContentPart])
_KINDS: Final = frozenset({"text", "thinking"})


def split_thinking(content: Raw) -> tuple[str, ReasoningBlock] | None:
    """Return the text and the thoughts of a list of such parts; None for any other content."""
    if not begins_list(content):
        return None
    parts = try_decode(_parts, content)
    if parts is None or any(part.type not in _KINDS for part in parts):
        return None
    [thoughts] = thinking_in(parts) or [ReasoningBlock()]
    return "".join(part.text or "" for part in parts), thoughts


_PROOFS: Final = {
    "reasoning_details": IN_DETAILS,
    "tool_calls": IN_CALLS,
    "extra_content": IN_CALLS,
    "provider_specific_fields": IN_LITELLM,
    "thinking_blocks": IN_DETAILS,
}
"""The fields of a message with values that only their maker can read, and what is before them."""


def _marked(message: Fields, maker: str) -> Fields:
    """Return a message or a delta with marks in what only its maker can read."""
    marked = {
        name: Raw(wrap_all(bytes(message[name]), before, maker))
        for name, before in _PROOFS.items()
        if name in message
    }
    return {**message, **marked}


def _details(block: ReasoningBlock, maker: str) -> Iterator[dict[str, object]]:
    if block.is_summary:
        yield render_detail("summary", block.text, block)
    elif block.text or block.signature:
        signature = block.signature and wrapped(block.signature, maker)
        if not signature and block.format == ANTHROPIC:
            signature = unsigned(maker) or None
        yield render_detail("text", block.text, block, signature=signature)
    if block.encrypted:
        yield render_detail("encrypted", wrapped(block.encrypted, maker), block)


DetailKind = Literal["text", "summary", "encrypted"]


def render_detail(
    kind: DetailKind, said: str, of: ReasoningBlock | ReasoningSignature | None, **more: str | None
) -> dict[str, object]:
    """Return an item of `reasoning_details` with the id and the format of what it belongs to."""
    common = {"id": of and of.id, "format": of and of.format}
    name = "data" if kind == "encrypted" else kind
    return {"type": f"reasoning.{kind}", name: said, **more, **common}


_CHANGED: Final = REASONING_FIELDS | _PROOFS.keys()


def shown_message(message: Fields, maker: str, *, hides: bool, tells_field: bool = True) -> Fields:
    """Return a provider's message or delta as a client of its own format gets it.

    Raises `msgspec.DecodeError` if its reasoning is not a string.
    """
    if _CHANGED.isdisjoint(message) and split_thinking(message.get("content", NULL)) is None:
        return message
    shown = _filled(_marked(message, maker), maker, tells_field=tells_field)
    return without(shown, REASONING_FIELDS) if hides else shown


# A client's history

_messages: Final = msgspec.json.Decoder(list[Fields])
_details_decoder: Final = msgspec.json.Decoder(list[ReasoningDetail])


_ShortId = Annotated[str, Meta(max_length=LONGEST_CALL_ID)]


class _PlainFunction(Struct, forbid_unknown_fields=True, gc=False):
    name: str | None = None
    arguments: str | None = None


class _PlainCall(Struct, forbid_unknown_fields=True, gc=False):
    id: Optional[_ShortId] = None  # noqa: UP045 - `|` knows no annotated type
    type: str | None = None
    function: _PlainFunction | None = None


class _PlainMessage(Struct, forbid_unknown_fields=True):
    """A client's message that every provider gets as it is."""

    role: Raw = NULL
    content: Raw = NULL
    name: Raw = NULL
    refusal: Raw = NULL
    tool_call_id: Optional[_ShortId] = None  # noqa: UP045
    tool_calls: list[_PlainCall] | None = None


class _PlainRequest(Struct):
    messages: list[_PlainMessage]


_plain: Final = msgspec.json.Decoder(_PlainRequest)


def is_plain(body: bytes) -> bool:
    """Tell whether every provider gets all messages as they stand in a body."""
    return try_decode(_plain, body) is not None


def may_change(body: bytes) -> bool:
    """Tell whether a provider may get other messages than stand in a body that is not plain."""
    return bool(_OWN.search(body)) or is_marked(body)


def own_messages(messages: Raw, endpoint: Endpoint) -> Raw:
    """Return a client's messages with what a provider made itself, in its own fields.

    Ids of calls are as long as the format allows.
    """
    try:
        return raw([_own_message(message, endpoint) for message in _messages.decode(messages)])
    except (msgspec.DecodeError, RecursionError):
        # Not a conversation: the provider reports the error.
        return messages


def _own_message(message: Fields, endpoint: Endpoint) -> Fields:
    message = _with_short_id(message, "tool_call_id")
    given = message.get("tool_calls", NULL)
    if _OWN.search(bytes(given)):
        calls = [_with_short_id(call, "id") for call in _messages.decode(given)]
        given = raw(calls)
        message = {**message, "tool_calls": given}
    if is_marked(bytes(given)):
        calls = [_own_call(call, endpoint.provider) for call in _messages.decode(given)]
        message = {**message, "tool_calls": raw(calls)}
    message = _own_extra(message, endpoint.provider)
    if REASONING_FIELDS.isdisjoint(message):
        return message
    details = try_decode(_details_decoder, message.get("reasoning_details", NULL)) or ()
    blocks = parse_details(details, of_client=True)
    maker = next((block.maker for block in blocks if block.maker), None)
    if maker is None:
        return _of_anybody(message, endpoint)
    if maker != endpoint.provider:
        return without(message, REASONING_FIELDS)
    field: ReasoningField | None = next((block.field for block in blocks if block.field), None)
    if field is None:
        own = unwrap_all(bytes(message["reasoning_details"]), IN_DETAILS, maker)
        return {**message, "reasoning_details": Raw(own or b"[]")}
    own = without(message, REASONING_FIELDS)
    if field != "thinking":
        return {**own, field: raw("".join(block.text for block in blocks))}
    said = try_decode(text_decoder, message.get("content", NULL)) or ""
    parts = [{"type": "text", "text": said}] if said else []
    return {**own, "content": raw([_thinking_part(blocks), *parts])}


def _with_short_id(part: Fields, name: str) -> Fields:
    given = try_decode(text_decoder, part.get(name, NULL)) or ""
    short = short_id(given, LONGEST_CALL_ID)
    return part if short == given else {**part, name: raw(short)}


def _own_call(call: Fields, provider: str) -> Fields:
    """Return a call with what the provider made of it, wherever that stands."""
    call = _own_extra(call, provider)
    if not is_marked(given := encoder.encode(call)):
        return call
    own = unwrap_all(given, IN_CALLS, provider)
    if own is not None:
        return fields_decoder.decode(own)
    # Of another provider: LiteLLM's field, or one beside the arguments.
    function = try_decode(fields_decoder, call.get("function", NULL)) or {}
    return without(call, {"provider_specific_fields", "thought_signature"}) | {
        "function": raw(without(function, {"provider_specific_fields", "thought_signature"}))
    }


def _own_extra(part: Fields, provider: str) -> Fields:
    """Return a message or a call with what stands beside it, as far as the provider made that."""
    for name in _BESIDE:
        if name in part and is_marked(given := bytes(part[name])):
            own = unwrap_all(given, _PROOFS[name], provider)
            part = without(part, {name}) if own is None else {**part, name: Raw(own)}
    return part


def _of_anybody(message: Fields, endpoint: Endpoint) -> Fields:
    """Return a message with reasoning of an unknown maker, as a provider may take it."""
    profile = endpoint.profile
    if profile.refuses_reasoning:
        return without(message, REASONING_FIELDS)
    text = message.get("reasoning", NULL)
    if (
        text == NULL
        or "reasoning_content" in message
        or profile.takes_reasoning_as == "reasoning_details"
    ):
        return message
    # What servers of models that reason require is this field; the others ignore it.
    return {**message, "reasoning_content": text}


# Canonical blocks


def render_thoughts(
    blocks: Sequence[ReasoningBlock],
    field: ReasoningField | None,
    said: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """Return fields of a message: the reasoning of a turn in the field in which it came.

    `said` is the content of the message in parts, to which some add theirs.
    """
    text = "".join(block.text for block in blocks)
    if field == "reasoning_details":
        return {field: render_details(blocks)}
    if field == "thinking":
        return {"content": [_thinking_part(blocks), *said]}
    if field == "thinking_blocks":
        return {field: [_thinking_block(block) for block in blocks], "reasoning_content": text}
    return {} if field is None else {field: text}


def _thinking_part(blocks: Sequence[ReasoningBlock]) -> dict[str, object]:
    text = "".join(block.text for block in blocks)
    signature = next((block.signature for block in blocks if block.signature), None)
    signed = {} if signature is None else {"signature": signature}
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], **signed}


def _thinking_block(block: ReasoningBlock) -> dict[str, object]:
    if block.encrypted:
        return {"type": "redacted_thinking", "data": block.encrypted}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}


def render_extra(proof: ReasoningBlock | None) -> Fields:
    """Return the fields that a server of Gemini sent beside a call or a text, and wants back."""
    given = (None if proof is None else try_decode(fields_decoder, proof.encrypted or "")) or {}
    # What clients have kept since an earlier version is the content of the usual field.
    return given if not given or given.keys() <= _EXTRA else {"extra_content": raw(given)}


_EXTRA: Final = frozenset(
    {"extra_content", "provider_specific_fields", "thought_signature", "function"}
)


def parse_extra(extra: Fields, call_id: str | None = None) -> ReasoningBlock:
    """Return what belongs to a call, or to a text, as reasoning that clients send back."""
    encrypted = encoder.encode(extra).decode("utf-8", "replace")
    return ReasoningBlock(encrypted=encrypted, id=call_id, field="extra_content")
