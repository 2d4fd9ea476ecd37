"""The client's side of the chat format: requests to canonical ones, canonical replies back. Pure.

    chunk* (usage | error) [DONE]

Each choice of a stream begins with its role and ends with its `finish_reason`; later events of the
choice are rejected, so that the stream is always legal.

Source: https://platform.openai.com/docs/api-reference/chat/create, and the public gateway's
additions to it (`reasoning`, `reasoning_details`, `cache_control`).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.translation import ClientFormat, StreamEncoder
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    SAMPLING,
    AudioBlock,
    Block,
    BlockEnded,
    CanonicalEvent,
    CanonicalRequest,
    CanonicalToolChoice,
    ChoiceFinished,
    DocumentBlock,
    ImageBlock,
    JsonOutput,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningParameter,
    ReasoningSignature,
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ThinkingOptions,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    ToolResult,
    Turn,
    UsageReported,
    with_breakpoint,
    with_grammar,
)
from tollhouse.inference.formats.chat_completions.reasoning import (
    THOUGHTS,
    ContentPart,
    ReasoningDetail,
    parse_details,
    parse_thinking_blocks,
    render_details,
)
from tollhouse.inference.formats.chat_completions.wire import (
    error_chunk,
    render_call,
    render_chunk,
    render_end,
    render_stream_error,
    render_usage,
    reply_fields,
)
from tollhouse.inference.formats.event_template import EventTemplate
from tollhouse.inference.formats.kinds import CHAT_PARTS, CHAT_TOOLS, refused
from tollhouse.inference.formats.media_types import data_url, file_block, recording
from tollhouse.inference.formats.proofs import unsigned, wrapped
from tollhouse.inference.formats.wire import (
    NULL,
    encoder,
    given,
    given_fields,
    raw,
    read_typed,
    texts,
)
from tollhouse.kernel.errors import Invalid, TollhouseError

if TYPE_CHECKING:
    from collections.abc import Collection

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.translation import TranslationSource
    from tollhouse.inference.formats.canonical.types import BlockDelta, CanonicalResponse, Choice
    from tollhouse.inference.formats.chat_completions.wire import ChatRequest
    from tollhouse.inference.types import ReplyIdentity


_AtLeastOne = Annotated[int, Meta(ge=1)]


class _Url(Struct):
    url: str
    detail: str | None = None


class _File(Struct):
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None


class _Recording(Struct):
    data: str
    format: str


class _Part(ContentPart):
    refusal: str | None = None
    image_url: _Url | str | None = None
    file: _File | None = None
    input_audio: _Recording | None = None
    cache_control: Raw = NULL


class _Function(Struct):
    name: str
    arguments: str = ""


class _Custom(Struct):
    name: str
    input: str = ""


class _Call(Struct):
    id: str
    type: str = "function"
    function: _Function | None = None
    custom: _Custom | None = None


class _Image(Struct):
    image_url: _Url


class _Message(Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None
    images: list[_Image] | None = None
    audio: Raw = NULL
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[ReasoningDetail] | None = None
    thinking_blocks: list[ContentPart] | None = None
    cache_control: Raw = NULL


class _ToolFunction(Struct):
    name: str
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None
    cache_control: Raw = NULL


class _Grammar(Struct):
    syntax: str | None = None
    definition: str | None = None


class _InputFormat(Struct):
    grammar: _Grammar | None = None


class _CustomTool(Struct):
    name: str
    description: str | None = None
    format: _InputFormat | None = None


class _Tool(Struct):
    type: str = "function"
    function: _ToolFunction | None = None
    custom: _CustomTool | None = None
    cache_control: Raw = NULL


class _Named(Struct):
    name: str


class _Choice(Struct):
    type: str = ""
    mode: str | None = None
    allowed_tools: _Choice | None = None
    function: _Named | None = None
    custom: _Named | None = None


class _Schema(Struct):
    name: str | None = None
    description: str | None = None
    schema: Raw = NULL
    strict: bool | None = None


class _Format(Struct):
    type: str
    json_schema: _Schema | None = None


class _Body(Struct):
    messages: list[_Message]
    stream: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: _AtLeastOne | None = None
    max_completion_tokens: _AtLeastOne | None = None
    stop: str | list[str] | None = None
    response_format: _Format | None = None
    reasoning: ReasoningParameter | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    verbosity: str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: _AtLeastOne | None = None
    user: str | None = None
    metadata: Raw = NULL


_body = msgspec.json.Decoder(_Body)


def parse_canonical_request(request: ChatRequest) -> CanonicalRequest:
    """Convert a chat request; raises `Invalid` with the path of a field of the wrong type."""
    read = read_typed(_body, request.body)
    if request.fields.get("functions", NULL) != NULL:
        raise Invalid("functions: cannot be passed on to this model; give them as tools.")
    return CanonicalRequest(
        turns=_turns(read.messages),
        stream=bool(read.stream),
        tools=tuple(_tool(tool, f"tools[{at}]") for at, tool in enumerate(read.tools or ())),
        tool_choice=_tool_choice(read.tool_choice),
        parallel_tool_calls=read.parallel_tool_calls,
        max_tokens=read.max_completion_tokens or read.max_tokens,
        stop=texts(read.stop),
        output=_output(read.response_format),
        thinking=_thinking(read),
        verbosity=read.verbosity,
        logprobs=bool(read.logprobs),
        top_logprobs=read.top_logprobs,
        choices=read.n,
        user=read.user,
        metadata=given(read.metadata),
        sampling=given_fields(request.fields, SAMPLING),
        cache=given(request.fields.get("cache_control", NULL)),
    )


# Messages


def _turns(messages: list[_Message]) -> tuple[Turn, ...]:
    """Return a turn for each message, and one for consecutive tool results."""
    turns: list[Turn] = []
    placed = ((f"messages[{index}]", message) for index, message in enumerate(messages))
    for is_result, run in groupby(placed, lambda each: each[1].role in {"tool", "function"}):
        if is_result:
            turns.append(Turn("user", tuple(_result(message, at) for at, message in run)))
        else:
            turns += [turn for at, message in run for turn in _turn(message, at)]
    return tuple(turns)


def _turn(message: _Message, at: str) -> tuple[Turn, ...]:
    if message.role == "assistant":
        return _assistant(message, at)
    blocks = with_breakpoint(_content(message.content, at), given(message.cache_control))
    return (Turn("user" if message.role == "user" else "system", blocks),)


def _assistant(message: _Message, at: str) -> tuple[Turn, ...]:
    """Return a turn of the model, and its pictures in one of the user: no model has them itself."""
    if message.audio != NULL:
        raise Invalid(f"{at}.audio: an id of a recording is known to nobody here; send its text.")
    blocks = with_breakpoint(_said(message, at), given(message.cache_control))
    files = [each for each in blocks if isinstance(each, (ImageBlock, DocumentBlock, AudioBlock))]
    files += [ImageBlock(data_url(each.image_url.url)) for each in message.images or ()]
    said = Turn("assistant", tuple(each for each in blocks if each not in files))
    if not files:
        return (said,)
    shown = Turn("user", (TextBlock("[image_url] Of the assistant's message:"), *files))
    # Results have to follow their calls at once.
    return (shown, said) if message.tool_calls else (said, shown)


def _result(message: _Message, at: str) -> ToolResult:
    call_id = message.tool_call_id or message.name
    if call_id is None:
        raise Invalid(f"{at}.tool_call_id: this field is required.")
    blocks = _content(message.content, at)
    content = tuple(
        each for each in blocks if isinstance(each, (TextBlock, ImageBlock, DocumentBlock))
    )
    if len(content) < len(blocks):
        raise Invalid(f"{at}.content: must be of text, images and files.")
    return ToolResult(call_id, content, cache=given(message.cache_control))


def _said(message: _Message, at: str) -> tuple[Block, ...]:
    blocks: list[Block] = [
        *_reasoning(message),
        *_content(message.content, at, skipped=THOUGHTS),
    ]
    if message.refusal:
        blocks.append(RefusalBlock(message.refusal))
    for index, call in enumerate(message.tool_calls or ()):
        if call.function is not None:
            blocks.append(ToolCall(call.id, call.function.name, call.function.arguments))
        elif call.custom is not None:
            arguments = msgspec.json.encode({"input": call.custom.input}).decode()
            blocks.append(ToolCall(call.id, call.custom.name, arguments))
        else:
            raise refused(CHAT_TOOLS, call.type, f"{at}.tool_calls[{index}]")
    if (old := message.function_call) is not None:
        # The result, of the role `function`, names the function alone.
        blocks.append(ToolCall(old.name, old.name, old.arguments))
    return tuple(blocks)


def _reasoning(message: _Message) -> list[ReasoningBlock]:
    if message.reasoning_details:
        return parse_details(message.reasoning_details, of_client=True)
    parts = message.content if isinstance(message.content, list) else ()
    thoughts = [part for part in parts if part.type in THOUGHTS]
    if found := parse_thinking_blocks(message.thinking_blocks or thoughts, of_client=True):
        return found
    text = message.reasoning or message.reasoning_content
    return [ReasoningBlock(text)] if text else []


def _content(
    content: str | list[_Part] | None, at: str, skipped: Collection[str] = ()
) -> tuple[Block, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextBlock(content),)
    placed = ((f"{at}.content[{index}]", part) for index, part in enumerate(content))
    return tuple(_part(part, here) for here, part in placed if part.type not in skipped)


def _part(part: _Part, at: str) -> Block:
    cache = given(part.cache_control)
    if part.text is not None:
        return TextBlock(part.text, cache)
    if part.refusal is not None:
        return RefusalBlock(part.refusal)
    if isinstance(part.image_url, str):
        return ImageBlock(data_url(part.image_url), cache=cache)
    if part.image_url is not None:
        return ImageBlock(data_url(part.image_url.url), part.image_url.detail, cache)
    if part.file is not None:
        if part.file.file_data is None:
            reason = "is required; an id of a file is known to nobody here."
            raise Invalid(f"{at}.file.file_data: {reason}")
        return file_block(part.file.file_data, part.file.filename, cache)
    return _recording(part, at)


def _recording(part: _Part, at: str) -> AudioBlock:
    """Return an audio part; reject any other part that is left."""
    if part.input_audio is not None:
        return recording(part.input_audio.data, part.input_audio.format)
    if part.type in {"text", "image_url", "file", "input_audio"}:
        raise Invalid(f"{at}.{part.type}: this field is required.")
    raise refused(CHAT_PARTS, part.type or None, at)


def _tool(tool: _Tool, path: str) -> ToolDefinition:
    """Return a tool that the client runs; a provider's own is `Invalid`."""
    cache = given(tool.cache_control)
    if tool.custom is not None:
        custom = tool.custom
        grammar = (custom.format and custom.format.grammar) or _Grammar()
        description = with_grammar(custom.description, grammar.syntax, grammar.definition)
        return ToolDefinition(custom.name, description, cache=cache, freeform=True)
    if tool.function is None and tool.type in CHAT_TOOLS:
        raise Invalid(f"{path}.{tool.type}: this field is required.")
    if tool.function is None:
        raise refused(CHAT_TOOLS, tool.type, path)
    own, cache = tool.function, cache or given(tool.function.cache_control)
    return ToolDefinition(own.name, own.description, given(own.parameters), own.strict, cache)


def _tool_choice(choice: str | _Choice | None) -> CanonicalToolChoice | None:
    if isinstance(choice, _Choice) and choice.allowed_tools is not None:
        choice = choice.allowed_tools.mode
    if isinstance(choice, _Choice):
        named = choice.function or choice.custom
        return None if named is None else CanonicalToolChoice("named", named.name)
    if choice == "auto" or choice == "none" or choice == "required":  # noqa: PLR1714 - narrows
        return CanonicalToolChoice(choice)
    if choice is not None:
        raise Invalid("tool_choice: must be auto, none, required or an object that names a tool.")
    return None


def _output(wanted: _Format | None) -> JsonOutput | None:
    if wanted is None or wanted.type not in {"json_object", "json_schema"}:
        return None
    own = wanted.json_schema
    if own is None:
        return JsonOutput()
    return JsonOutput(given(own.schema), own.name, own.description, own.strict)


def _thinking(body: _Body) -> ThinkingOptions | None:
    own = body.reasoning or ReasoningParameter()
    thinking = own.options(body.reasoning_effort, exclude=body.include_reasoning is False)
    return None if body.reasoning is None and thinking == ThinkingOptions() else thinking


# Streams


class ChatStreamEncoder(StreamEncoder):
    """Encodes a stream as chunks."""

    def __init__(self, source: TranslationSource, identity: ReplyIdentity) -> None:
        self._request = source.request.fields
        self._identity = identity
        self._choices: dict[int, _ChoiceEncoder] = {}

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the chunk of an event; empty if the format has none for it."""
        if isinstance(event, (StreamStarted, UsageReported, BlockEnded)):
            return b""
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = _ChoiceEncoder(
                event.choice, self._identity.maker
            )
        if isinstance(event, ChoiceFinished):
            return render_chunk(self._identity, [choice.finish(event)])
        if not isinstance(event, TextDelta) or event.logprobs is not None or not choice.begun:
            return render_chunk(self._identity, [choice.encode(event)])
        if choice.template is not None:
            return choice.template.fill((encoder.encode(event.text),))
        shown = render_chunk(self._identity, [choice.encode(event)])
        choice.template = EventTemplate.of(shown, {"content": raw(event.text)})
        return shown

    def _end(self, charge: Charge) -> bytes:
        return render_end(self._identity, self._request, charge)

    def _fail(self, error: TollhouseError) -> bytes:
        return render_stream_error(error, error_chunk(self._identity))


class _ChoiceEncoder:
    """Encodes one choice: its role once, its tool calls numbered, nothing after its end."""

    def __init__(self, index: int, maker: str) -> None:
        self.begun = False
        self.template: EventTemplate | None = None
        """Of its chunks of text without log-probabilities, once there was one."""
        self._index = index
        self._maker = maker
        self._finished = False
        self._calls: dict[int, int] = {}
        """The number of the call by block."""
        self._details: dict[tuple[int, str], int] = {}
        """The number of the detail by block and kind."""

    def encode(self, event: BlockDelta) -> dict[str, object]:
        logprobs = event.logprobs if isinstance(event, TextDelta) else None
        return self._choice(self._delta(event), logprobs=logprobs)

    def finish(self, event: ChoiceFinished) -> dict[str, object]:
        native = event.native_finish_reason
        choice = self._choice({}, finish_reason=event.finish_reason, native_finish_reason=native)
        self._finished, self.template = True, None
        return choice

    def _choice(self, delta: dict[str, object], **end: object) -> dict[str, object]:
        if self._finished:
            raise MalformedResponse("a choice goes on after its end")
        if not self.begun:
            self.begun = True
            delta = {"role": "assistant", "content": "", **delta}
        return {
            "index": self._index,
            "delta": delta,
            "finish_reason": None,
            "logprobs": None,
            **end,
        }

    def _delta(self, event: BlockDelta) -> dict[str, object]:
        if isinstance(event, TextDelta):
            return {"content": event.text}
        if isinstance(event, RefusalDelta):
            return {"refusal": event.text}
        if isinstance(event, ReasoningDelta):
            return self._reasoning(event)
        if isinstance(event, ReasoningSignature):
            return {"reasoning_details": self._signature(event)}
        return {"tool_calls": [self._call(event)]}

    def _reasoning(self, event: ReasoningDelta) -> dict[str, object]:
        name = "summary" if event.is_summary else "text"
        detail = {"type": f"reasoning.{name}", name: event.text, "id": None, "format": None}
        index = self._detail(event.block, name)
        return {"reasoning": event.text, "reasoning_details": [{**detail, "index": index}]}

    def _signature(self, event: ReasoningSignature) -> list[dict[str, object]]:
        common = {"id": event.id, "format": event.format}
        details: list[dict[str, object]] = []
        signature = wrapped(event.signature or "", self._maker)
        if event.encrypted is None and event.format == ANTHROPIC:
            signature = signature or unsigned(self._maker)
        if signature:
            index = self._detail(event.block, "text")
            text = {"type": "reasoning.text", "text": "", "signature": signature}
            details.append({**text, **common, "index": index})
        if event.encrypted is not None:
            index = self._detail(event.block, "encrypted")
            data = {"type": "reasoning.encrypted", "data": wrapped(event.encrypted, self._maker)}
            details.append({**data, **common, "index": index})
        return details

    def _detail(self, block: int, kind: str) -> int:
        return self._details.setdefault((block, kind), len(self._details))

    def _call(self, event: ToolCallStarted | ToolCallDelta) -> dict[str, object]:
        index = self._calls.setdefault(event.block, len(self._calls))
        if isinstance(event, ToolCallDelta):
            return {"index": index, "function": {"arguments": event.arguments}}
        return {"index": index, **render_call(event.id, event.name, "")}


# Complete responses


def render_response(
    source: TranslationSource, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
) -> bytes:
    """Return a chat completion."""
    del source
    return encoder.encode(
        {
            **reply_fields(identity, "chat.completion"),
            "system_fingerprint": None,
            "service_tier": reply.service_tier,
            "choices": [_choice(choice, identity.maker) for choice in reply.choices],
            "usage": render_usage(charge),
        }
    )


def _choice(choice: Choice, maker: str) -> dict[str, object]:
    return {
        "index": choice.index,
        "message": _message(choice, maker),
        "finish_reason": choice.finish_reason,
        "native_finish_reason": choice.native_finish_reason,
        "logprobs": choice.logprobs,
    }


def _message(choice: Choice, maker: str) -> dict[str, object]:
    blocks = choice.blocks
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    refusals = [block.text for block in blocks if isinstance(block, RefusalBlock)]
    message: dict[str, object] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": "".join(refusals) if refusals else None,
    }
    reasoning_blocks = [block for block in blocks if isinstance(block, ReasoningBlock)]
    if reasoning_blocks:
        message["reasoning"] = "".join(block.text for block in reasoning_blocks) or None
        message["reasoning_details"] = render_details(reasoning_blocks, maker)
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {"index": index, **render_call(call.id, call.name, call.arguments)}
            for index, call in enumerate(calls)
        ]
    return message


CHAT_CLIENT: Final = ClientFormat(parse_canonical_request, render_response, ChatStreamEncoder)
