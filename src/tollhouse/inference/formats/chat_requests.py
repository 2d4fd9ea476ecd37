"""Requests of the chat format: the client's in canonical form, canonical ones for a provider. Pure.

Source: https://platform.openai.com/docs/api-reference/chat/create, and the public gateway's
additions to it (`reasoning`, `reasoning_details`, `cache_control`).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from tollhouse.inference.formats.canonical import (
    FREEFORM_SCHEMA,
    SAMPLING,
    AudioBlock,
    Block,
    CanonicalRequest,
    CanonicalToolChoice,
    DocumentBlock,
    ImageBlock,
    JsonOutput,
    NotCarriedError,
    ReasoningBlock,
    ReasoningParameter,
    RefusalBlock,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
    usual_effort,
    with_breakpoint,
    with_grammar,
)
from tollhouse.inference.formats.chat_calls import render_call
from tollhouse.inference.formats.chat_reasoning import (
    THOUGHTS,
    ContentPart,
    ReasoningDetail,
    parse_details,
    parse_thinking_blocks,
    render_extra,
    render_thoughts,
)
from tollhouse.inference.formats.kinds import CHAT_PARTS, CHAT_TOOLS, refused
from tollhouse.inference.formats.media_types import data_url, file_block, recording
from tollhouse.inference.formats.tools import LONGEST_CALL_ID, short_id
from tollhouse.inference.formats.wire import (
    NULL,
    encoder,
    given,
    given_fields,
    present,
    read_typed,
    texts,
    without,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.types import Endpoint


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


class _Named(Struct):
    name: str


class _Function(_Named):
    arguments: str = ""


class _Custom(_Named):
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


class _ToolFunction(_Named):
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None
    cache_control: Raw = NULL


class _Grammar(Struct):
    syntax: str | None = None
    definition: str | None = None


class _InputFormat(Struct):
    grammar: _Grammar | None = None


class _CustomTool(_Named):
    description: str | None = None
    format: _InputFormat | None = None


class _Tool(Struct):
    type: str = "function"
    function: _ToolFunction | None = None
    custom: _CustomTool | None = None
    cache_control: Raw = NULL


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


_AtLeastOne = Annotated[int, Meta(ge=1)]


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


def parse_canonical_request(request: ClientRequest, body: bytes) -> CanonicalRequest:
    """Convert a chat request; raises `Invalid` with the path of a field of the wrong type."""
    read = read_typed(_body, body)
    if request.fields.get("functions", NULL) != NULL:
        raise Invalid("functions: cannot be passed on to this model; give them as tools.")
    return CanonicalRequest(
        turns=_read_turns(read.messages),
        stream=bool(read.stream),
        tools=tuple(_read_tool(tool, f"tools[{at}]") for at, tool in enumerate(read.tools or ())),
        tool_choice=_read_tool_choice(read.tool_choice),
        parallel_tool_calls=read.parallel_tool_calls,
        max_tokens=read.max_completion_tokens or read.max_tokens,
        stop=texts(read.stop),
        output=_read_output(read.response_format),
        thinking=_read_thinking(read),
        verbosity=read.verbosity,
        logprobs=bool(read.logprobs),
        top_logprobs=read.top_logprobs,
        choices=read.n,
        user=read.user,
        metadata=given(read.metadata),
        sampling=given_fields(request.fields, SAMPLING),
        cache=given(request.fields.get("cache_control", NULL)),
    )


_MOST_STOPS: Final = 4


def render_request(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the body of a request."""
    profile = endpoint.profile
    with_usage = prompt.stream and profile.usage_in_streams
    fields: dict[str, object] = {
        "model": endpoint.model,
        "messages": [each for turn in prompt.turns for each in _write_messages(turn, endpoint)],
        "stream": prompt.stream or None,
        "stream_options": {"include_usage": True} if with_usage else None,
        profile.output_limit: prompt.max_tokens,
        "stop": list(prompt.stop[:_MOST_STOPS]) or None,
        "user": prompt.user,
        "metadata": prompt.metadata,
        "n": prompt.choices,
        **(_write_tools(prompt) if prompt.tools else {}),
        "response_format": prompt.output and _write_output(prompt.output),
        "reasoning_effort": prompt.thinking and _write_thinking(prompt.thinking),
        "verbosity": prompt.verbosity,
        "logprobs": prompt.logprobs or None,
        "top_logprobs": prompt.top_logprobs if prompt.logprobs else None,
        **{name: prompt.sampling[name] for name in SAMPLING if name in prompt.sampling},
    }
    return encoder.encode(without(present(fields), profile.refused_in_chat))


# Messages


def _read_turns(messages: list[_Message]) -> tuple[Turn, ...]:
    """Return a turn for each message, and one for consecutive tool results."""
    turns: list[Turn] = []
    placed = ((f"messages[{index}]", message) for index, message in enumerate(messages))
    for is_result, run in groupby(placed, lambda each: each[1].role in {"tool", "function"}):
        if is_result:
            turns.append(Turn("user", tuple(_read_result(message, at) for at, message in run)))
        else:
            turns += [turn for at, message in run for turn in _read_turn(message, at)]
    return tuple(turns)


def _read_turn(message: _Message, at: str) -> tuple[Turn, ...]:
    if message.role == "assistant":
        return _read_assistant(message, at)
    blocks = with_breakpoint(_read_content(message.content, at), given(message.cache_control))
    return (Turn("user" if message.role == "user" else "system", blocks),)


def _read_assistant(message: _Message, at: str) -> tuple[Turn, ...]:
    """Return a turn of the model, and its pictures in one of the user: no model has them itself."""
    if message.audio != NULL:
        raise Invalid(f"{at}.audio: an id of a recording is known to nobody here; send its text.")
    blocks = with_breakpoint(_read_said(message, at), given(message.cache_control))
    files = [each for each in blocks if isinstance(each, (ImageBlock, DocumentBlock, AudioBlock))]
    files += [ImageBlock(data_url(each.image_url.url)) for each in message.images or ()]
    said = Turn("assistant", tuple(each for each in blocks if each not in files))
    if not files:
        return (said,)
    shown = Turn("user", (TextBlock("[image_url] Of the assistant's message:"), *files))
    # Results have to follow their calls at once.
    return (shown, said) if message.tool_calls else (said, shown)


def _write_messages(turn: Turn, endpoint: Endpoint) -> Iterator[dict[str, object]]:
    if turn.role == "assistant":
        message = _write_assistant(turn, endpoint)
        if len(message) > 1:
            yield message
        return
    results = [block for block in turn.blocks if isinstance(block, ToolResult)]
    yield from map(_write_result, results)
    # A tool message holds text only; other content follows in a user message.
    pictures = [
        each for result in results for each in result.content if not isinstance(each, TextBlock)
    ]
    rest = [block for block in turn.blocks if not isinstance(block, ToolResult)]
    if pictures or rest:
        yield {"role": turn.role, "content": _write_content([*pictures, *rest])}


# Messages of the model


def _read_said(message: _Message, at: str) -> tuple[Block, ...]:
    blocks: list[Block] = [
        *_read_reasoning(message),
        *_read_content(message.content, at, skipped=THOUGHTS),
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


def _read_reasoning(message: _Message) -> list[ReasoningBlock]:
    if message.reasoning_details:
        return parse_details(message.reasoning_details, of_client=True)
    parts = message.content if isinstance(message.content, list) else ()
    thoughts = [part for part in parts if part.type in THOUGHTS]
    if found := parse_thinking_blocks(message.thinking_blocks or thoughts, of_client=True):
        return found
    text = message.reasoning or message.reasoning_content
    return [ReasoningBlock(text)] if text else []


def _write_assistant(turn: Turn, endpoint: Endpoint) -> dict[str, object]:
    mine = [
        block
        for block in turn.blocks
        if isinstance(block, ReasoningBlock) and block.may_go_to(endpoint.provider)
    ]
    extras = {block.id: block for block in mine if block.field == "extra_content"}
    text_blocks = [block for block in turn.blocks if isinstance(block, (TextBlock, RefusalBlock))]
    calls = [
        render_call(
            short_id(block.id, LONGEST_CALL_ID),
            block.name,
            block.arguments,
            render_extra(extras.get(block.id)),
        )
        for block in turn.blocks
        if isinstance(block, ToolCall)
    ]
    message: dict[str, object] = {"role": "assistant"}
    if text_blocks:
        message["content"] = _write_content(text_blocks)
    if calls:
        message["tool_calls"] = calls
    message |= render_extra(extras.get(None))
    thoughts = [block for block in mine if block.field != "extra_content"]
    if thoughts:
        first = thoughts[0]
        # Of the fields of chat, only the details have signatures.
        is_signed = first.maker is not None and bool(first.signature or first.encrypted)
        usual = "reasoning_details" if is_signed else endpoint.profile.takes_reasoning_as
        field = first.field or usual
        message |= render_thoughts(thoughts, field, [_write_part(block) for block in text_blocks])
    return message


# Results of calls


def _read_result(message: _Message, at: str) -> ToolResult:
    call_id = message.tool_call_id or message.name
    if call_id is None:
        raise Invalid(f"{at}.tool_call_id: this field is required.")
    blocks = _read_content(message.content, at)
    content = tuple(
        each for each in blocks if isinstance(each, (TextBlock, ImageBlock, DocumentBlock))
    )
    if len(content) < len(blocks):
        raise Invalid(f"{at}.content: must be of text, images and files.")
    return ToolResult(call_id, content, cache=given(message.cache_control))


def _write_result(result: ToolResult) -> dict[str, object]:
    texts = [each.text for each in result.content if isinstance(each, TextBlock)]
    call_id = short_id(result.call_id, LONGEST_CALL_ID)
    return {"role": "tool", "tool_call_id": call_id, "content": "\n".join(texts)}


# Content


def _read_content(
    content: str | list[_Part] | None, at: str, skipped: Collection[str] = ()
) -> tuple[Block, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextBlock(content),)
    placed = ((f"{at}.content[{index}]", part) for index, part in enumerate(content))
    return tuple(_read_part(part, here) for here, part in placed if part.type not in skipped)


def _write_content(blocks: Iterable[Block]) -> str | list[dict[str, object]]:
    """Return a message's content: a plain string if there is only text."""
    parts = [_write_part(block) for block in blocks]
    if all(part.keys() == {"type", "text"} for part in parts) and len(parts) <= 1:
        return "".join(str(part["text"]) for part in parts)
    return parts


def _read_part(part: _Part, at: str) -> Block:
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
    return _read_recording(part, at)


def _read_recording(part: _Part, at: str) -> AudioBlock:
    """Return an audio part; reject any other part that is left."""
    if part.input_audio is not None:
        return recording(part.input_audio.data, part.input_audio.format)
    if part.type in {"text", "image_url", "file", "input_audio"}:
        raise Invalid(f"{at}.{part.type}: this field is required.")
    raise refused(CHAT_PARTS, part.type or None, at)


def _write_part(block: Block) -> dict[str, object]:
    said: object
    match block:
        case TextBlock():
            kind, said = "text", block.text
        case RefusalBlock():
            kind, said = "refusal", block.text
        case ImageBlock():
            kind, said = "image_url", present({"url": block.url, "detail": block.detail})
        case AudioBlock():
            kind, said = "input_audio", {"data": block.data, "format": block.format}
        case DocumentBlock(text=str(text)):
            kind, said = "text", text
        case DocumentBlock():
            kind, said = "file", _write_file(block)
        case _:
            name = type(block).__name__.removesuffix("Block")
            raise NotCarriedError(block, f"a {name} cannot stand in a message of this role.")
    return {"type": kind, kind: said}


def _write_file(document: DocumentBlock) -> dict[str, object]:
    if document.url is None or not document.url.startswith("data:"):
        reason = "a document by URL cannot be sent to this provider; send its bytes."
        raise NotCarriedError(document, reason)
    return {"filename": document.name or "document", "file_data": document.url}


# Tools


def _read_tool(tool: _Tool, path: str) -> ToolDefinition:
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


def _write_tools(prompt: CanonicalRequest) -> dict[str, object]:
    return {
        "tools": [_write_tool(each) for each in prompt.tools],
        "tool_choice": prompt.tool_choice and _write_tool_choice(prompt.tool_choice),
        "parallel_tool_calls": prompt.parallel_tool_calls,
    }


def _write_tool(tool: ToolDefinition) -> Mapping[str, object]:
    fields = {
        "name": tool.name,
        "description": tool.description,
        "parameters": FREEFORM_SCHEMA if tool.freeform else tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": present(fields)}


def _read_tool_choice(choice: str | _Choice | None) -> CanonicalToolChoice | None:
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


def _write_tool_choice(choice: CanonicalToolChoice) -> object:
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


# What else is asked for


def _read_output(wanted: _Format | None) -> JsonOutput | None:
    if wanted is None or wanted.type not in {"json_object", "json_schema"}:
        return None
    own = wanted.json_schema
    if own is None:
        return JsonOutput()
    return JsonOutput(given(own.schema), own.name, own.description, own.strict)


def _write_output(output: JsonOutput) -> dict[str, object]:
    if output.schema is None:
        return {"type": "json_object"}
    schema = {
        "name": output.name or "answer",
        "schema": output.schema,
        "description": output.description,
        "strict": output.strict,
    }
    return {"type": "json_schema", "json_schema": present(schema)}


def _read_thinking(body: _Body) -> ThinkingOptions | None:
    own = body.reasoning or ReasoningParameter()
    thinking = own.options(body.reasoning_effort, exclude=body.include_reasoning is False)
    return None if body.reasoning is None and thinking == ThinkingOptions() else thinking


def _write_thinking(thinking: ThinkingOptions) -> str | None:
    effort = usual_effort(thinking)
    return "low" if effort is None and thinking.budget_tokens is not None else effort
