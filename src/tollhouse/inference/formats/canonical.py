"""The canonical form of requests, responses and streams.

    CanonicalRequest     Turn(role, blocks): text, images, documents, tool calls, tool results ...
    CanonicalResponse    Choice(blocks, finish_reason): the same blocks
    CanonicalEvent       Started? (delta | BlockEnded)* Finished Reported?

A client's history and a provider's response use the same blocks, so that the output of one request
can be sent with the next one, to the same provider or to another.

Parameters with the same name and meaning in every format that has them are kept in `sampling` as
raw JSON; a parameter that differs between formats has a field of its own.

A `StreamDecoder` produces events from a dialect's, a `StreamEncoder` renders them in a client's
format. `choice` and `block` identify a block: decoders number a choice's blocks from 0 in the order
in which they begin, with a new number whenever the kind changes. `BlockEnded` is sent only for
dialects that mark the end of a block, and then before the next block begins.

Providers sign or encrypt their models' reasoning, and a client that continues a conversation sends
it back unchanged. If the client's format has no field for a part of the block, `pack` puts the
whole block into the opaque field that the format has (`signature` and `data` of Messages,
`encrypted_content` of Responses), and `unpack` takes it out again. The packed text is not
encrypted: it is base64 of JSON and holds what the provider sent.

Source: the public gateway's reference of reasoning tokens, for the names of the formats.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from tollhouse.accounting.types import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

Role = Literal["system", "user", "assistant"]


class RedactedStruct(Struct, frozen=True, gc=False):
    """A struct whose `repr` shows nothing of a conversation's content."""

    def __repr__(self) -> str:
        """Show the class name only."""
        return f"<{type(self).__name__}>"


class TextBlock(RedactedStruct, frozen=True):
    """Text."""

    text: str
    cache: Raw | None = None
    """A `cache_control` object: a breakpoint of the provider's prompt cache."""


class RefusalBlock(RedactedStruct, frozen=True):
    """The model's refusal to answer."""

    text: str


class ImageBlock(RedactedStruct, frozen=True):
    """An image."""

    url: str
    """An HTTP or a `data:` URL."""
    detail: str | None = None
    cache: Raw | None = None


class DocumentBlock(RedactedStruct, frozen=True):
    """A document; has either `url` or `text`."""

    url: str | None = None
    """An HTTP or a `data:` URL."""
    text: str | None = None
    name: str | None = None
    cache: Raw | None = None


class AudioBlock(RedactedStruct, frozen=True):
    """Audio input."""

    data: str
    """Base64."""
    format: str


ReasoningField = Literal[
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "extra_content",
]
"""Fields of chat messages; `thinking` are parts of the content, and `extra_content` is whatever
stands beside the call that has the block's id."""


class ReasoningBlock(RedactedStruct, frozen=True):
    """A block of reasoning, with its provider's signature or encryption."""

    text: str = ""
    is_summary: bool = False
    """Whether the text is a summary of the reasoning, not the reasoning itself."""
    signature: str | None = None
    """The provider's signature of the text."""
    encrypted: str | None = None
    """The reasoning, encrypted by the provider."""
    id: str | None = None
    format: str | None = None
    """The format of signature and encrypted content; None if unknown."""
    maker: str | None = None
    """The slug of the provider that sent it; None if unknown."""
    field: ReasoningField | None = None
    """Where it stood in a message of the chat dialect."""

    def may_go_to(self, provider: str) -> bool:
        """Return whether a provider may get it: its maker, or any if nobody knows the maker."""
        return self.maker is None or self.maker == provider


class ToolCall(RedactedStruct, frozen=True):
    """A tool call of the model."""

    id: str
    name: str
    arguments: str
    """As the model wrote them; nearly always a JSON object."""
    cache: Raw | None = None


class ToolResult(RedactedStruct, frozen=True):
    """The result of a tool call; part of a user's turn."""

    call_id: str
    content: tuple[TextBlock | ImageBlock | DocumentBlock, ...]
    is_error: bool = False
    cache: Raw | None = None


Block = (
    TextBlock
    | RefusalBlock
    | ImageBlock
    | DocumentBlock
    | AudioBlock
    | ReasoningBlock
    | ToolCall
    | ToolResult
)


def with_breakpoint(blocks: Iterable[Block], cache: Raw | None) -> tuple[Block, ...]:
    """Return the blocks of a message that has a `cache_control`: its last block has it then."""
    marked = list(blocks)
    if cache is not None:
        for at, block in reversed(tuple(enumerate(marked))):
            if not isinstance(block, (RefusalBlock, AudioBlock, ReasoningBlock)):
                marked[at] = replace(block, cache=block.cache or cache)
                break
    return tuple(marked)


class Turn(RedactedStruct, frozen=True):
    """The consecutive blocks of one role."""

    role: Role
    blocks: tuple[Block, ...]


# Requests


class OwnTool(RedactedStruct, frozen=True):
    """What a client calls a tool that is no plain function of its name."""

    kind: str
    """The `type` of the tool: function, custom, tool_search ..."""
    name: str
    namespace: str | None = None


class ToolDefinition(RedactedStruct, frozen=True):
    """A tool that the client runs."""

    name: str
    description: str | None = None
    parameters: Raw | None = None
    """A JSON schema; None for a function without parameters."""
    strict: bool | None = None
    cache: Raw | None = None
    freeform: bool = False
    """Takes text instead of an object; in formats without such tools, an object with `input`."""
    own: OwnTool | None = None
    """Set if the client knows the tool by more than its name."""


def with_grammar(description: str | None, syntax: str | None, definition: str | None) -> str | None:
    """Return a freeform tool's description with its grammar: most formats have no field for it."""
    if not definition:
        return description
    rule = f"The input must follow this {syntax or ''} grammar:\n{definition}"
    return "\n\n".join(filter(None, [description, rule]))


class CanonicalToolChoice(RedactedStruct, frozen=True):
    """Which tools the model may or must call."""

    mode: Literal["auto", "none", "required", "named"]
    name: str | None = None
    """The tool that must be called if the mode is `named`."""


class JsonOutput(RedactedStruct, frozen=True):
    """Requires JSON output."""

    schema: Raw | None = None
    """The JSON schema; None for any object."""
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ThinkingOptions(RedactedStruct, frozen=True):
    """How much the model reasons, and whether the response shows it."""

    effort: str | None = None
    """none, minimal, low, medium, high, xhigh or max."""
    budget_tokens: int | None = None
    enabled: bool | None = None
    """True: the model decides how much; False: not at all."""
    summary: str | None = None
    """auto, concise or detailed if the client wants a summary of the reasoning."""
    exclude: bool = False
    """Reason, but leave the reasoning out of the response."""


class ReasoningParameter(Struct):
    """The public gateway's parameter `reasoning`."""

    effort: str | None = None
    max_tokens: int | None = None
    enabled: bool | None = None
    summary: str | None = None
    exclude: bool | None = None

    def options(
        self, default_effort: str | None = None, *, exclude: bool = False
    ) -> ThinkingOptions:
        """Return the options that it stands for."""
        effort = self.effort or default_effort
        hides = exclude or bool(self.exclude)
        return ThinkingOptions(effort, self.max_tokens, self.enabled, self.summary, hides)


class CanonicalRequest(RedactedStruct, frozen=True):
    """A request in canonical form."""

    turns: tuple[Turn, ...]
    stream: bool = False
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: CanonicalToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    output: JsonOutput | None = None
    thinking: ThinkingOptions | None = None
    verbosity: str | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    choices: int | None = None
    """How many choices are generated (`n`)."""
    user: str | None = None
    """The client's identifier of its end user."""
    metadata: Raw | None = None
    """A map of strings, stored by the provider."""
    sampling: Mapping[str, Raw] = {}
    """Some of `SAMPLING`."""
    cache: Raw | None = None
    """Asks for a breakpoint that moves with the end of the conversation."""


SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_a",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "logit_bias",
    "prompt_cache_key",
    "service_tier",
    "safety_identifier",
)
"""The names in `CanonicalRequest.sampling`."""
COMMON_PARAMETERS: Final = frozenset(
    {"tools", "tool_choice", "parallel_tool_calls", "max_tokens", "output", "thinking", "user"}
)
"""The parameters that every provider's dialect has."""
FREEFORM_SCHEMA: Final = Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'
)
"""The parameters of a freeform tool in formats without such tools."""


def given_parameters(prompt: CanonicalRequest) -> frozenset[str]:
    """Return the names of the parameters that a request sets: its fields and its sampling."""
    own = {name for name in _PARAMETERS if getattr(prompt, name) != _DEFAULTS[name]}
    return frozenset(own | prompt.sampling.keys())


def usual_effort(thinking: ThinkingOptions) -> str | None:
    """Return the effort; for a token budget, roughly the one that would use it."""
    budget = thinking.budget_tokens
    if thinking.effort is not None or budget is None:
        return thinking.effort
    return next((effort for least, effort in _EFFORTS if budget >= least), None)


def without_turns(prompt: CanonicalRequest) -> CanonicalRequest:
    """Return what reading and rendering a reply needs: no turns, and of tools no more than names.

    `given_parameters` stays the same.
    """
    tools = tuple(
        ToolDefinition(each.name, freeform=each.freeform, own=each.own) for each in prompt.tools
    )
    return replace(prompt, turns=(), tools=tools)


_EFFORTS: Final = ((16_000, "high"), (4_000, "medium"), (1, "low"))
"""The minimum budget in tokens for each effort, for dialects without budgets."""
_PARAMETERS: Final = frozenset(CanonicalRequest.__struct_fields__) - {
    *("turns", "stream", "sampling", "cache")
}
_DEFAULTS: Final = {name: getattr(CanonicalRequest(()), name) for name in _PARAMETERS}

# Responses

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class Choice(RedactedStruct, frozen=True):
    """One choice of a response."""

    blocks: tuple[Block, ...]
    """TextBlock, RefusalBlock, ReasoningBlock and ToolCall, in the order of the output."""
    finish_reason: FinishReason
    native_finish_reason: str | None = None
    """As the provider reported it."""
    stop_sequence: str | None = None
    """The stop sequence that ended the choice, if the provider reports it."""
    logprobs: Raw | None = None
    """The chat format's object: `{content: [...], refusal: ...}`."""
    index: int = 0


class CanonicalResponse(RedactedStruct, frozen=True):
    """A response in canonical form."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    """None if the provider reported no usable usage."""
    upstream_id: str | None = None
    service_tier: str | None = None


# Streams


class StreamStarted(RedactedStruct, frozen=True):
    """The provider began the response."""

    upstream_id: str | None = None
    usage: Usage | None = None
    """The usage reported at the start; the output covers only what came until then."""


class BlockEvent(RedactedStruct, frozen=True):
    """An event of one block of one choice."""

    choice: int
    block: int


class TextDelta(BlockEvent, frozen=True):
    """More text."""

    text: str
    logprobs: Raw | None = None
    """The chat format's object for these tokens."""


class RefusalDelta(BlockEvent, frozen=True):
    """More of a refusal."""

    text: str


class ReasoningDelta(BlockEvent, frozen=True):
    """More reasoning text."""

    text: str
    is_summary: bool = False
    field: ReasoningField | None = None


class ReasoningSignature(BlockEvent, frozen=True):
    """The signature or encrypted content of a reasoning block; at its end, or alone."""

    signature: str | None = None
    encrypted: str | None = None
    id: str | None = None
    format: str | None = None
    field: ReasoningField | None = None


class ToolCallStarted(BlockEvent, frozen=True):
    """A tool call begins."""

    id: str
    name: str


class ToolCallDelta(BlockEvent, frozen=True):
    """More of a call's arguments."""

    arguments: str


class BlockEnded(BlockEvent, frozen=True):
    """A block is complete."""


class ChoiceFinished(RedactedStruct, frozen=True):
    """A choice is complete."""

    choice: int
    finish_reason: FinishReason
    native_finish_reason: str | None = None
    stop_sequence: str | None = None


class UsageReported(RedactedStruct, frozen=True):
    """The usage that the provider reported; a later report replaces an earlier one."""

    usage: Usage


BlockDelta = (
    TextDelta | RefusalDelta | ReasoningDelta | ReasoningSignature | ToolCallStarted | ToolCallDelta
)
CanonicalEvent = StreamStarted | BlockDelta | BlockEnded | ChoiceFinished | UsageReported

# Packed reasoning

ANTHROPIC: Final = "anthropic-claude-v1"
OPENAI: Final = "openai-responses-v1"
_PREFIX: Final = "th1."
_block = msgspec.json.Decoder(ReasoningBlock)


def pack(reasoning: ReasoningBlock, maker: str = "") -> str:
    """Return a reasoning block as one opaque string, with the provider that made it."""
    fields = asdict(reasoning)
    fields["maker"] = maker or reasoning.maker
    if fields["maker"] is None:
        del fields["maker"], fields["field"]
    return _PREFIX + urlsafe_b64encode(msgspec.json.encode(fields)).decode()


def unpack(text: str) -> ReasoningBlock | None:
    """Return the block of a string that `pack` made; None for any other string."""
    if not text.startswith(_PREFIX):
        return None
    try:
        return _block.decode(urlsafe_b64decode(text.removeprefix(_PREFIX)))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None


Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
_body = msgspec.json.Decoder(dict[str, Any])
_LEAST_SHARED: Final = 16
"""Characters of a file's bytes that tell it from another word."""


class NotCarriedError(Exception):
    """A dialect has nothing for a block."""

    def __init__(self, block: Block, reason: str) -> None:
        super().__init__(reason)
        self.block = block
        self.reason = reason


def place_of(block: Block, body: bytes, content_field: str) -> str:
    """Return the path of a block's part in a body, `input[0].content[1]`; else of all content."""
    content = _content(block)
    try:
        conversation: Json = _body.decode(body)[content_field]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return content_field
    for path, text in _texts(conversation, content_field):
        own = text.rpartition(",")[2]  # the type before it may be written otherwise
        bytes_of_url = len(own) >= _LEAST_SHARED and content.endswith(own)
        if content and (text == content or bytes_of_url):
            return path
    return content_field


def _content(block: Block) -> str:
    if isinstance(block, (ImageBlock, DocumentBlock)):
        return block.url or ""
    if isinstance(block, AudioBlock):
        return block.data
    return block.text if isinstance(block, TextBlock) else ""


def _texts(conversation: Json, path: str) -> Iterator[tuple[str, str]]:
    """Return all texts in the order of the body, with their paths."""
    waiting = [(path, conversation)]
    while waiting:
        here, value = waiting.pop()
        if isinstance(value, str):
            yield here, value
        elif isinstance(value, dict):
            waiting += [(f"{here}.{name}", each) for name, each in reversed(value.items())]
        elif isinstance(value, list):
            waiting += reversed([(f"{here}[{at}]", each) for at, each in enumerate(value)])
