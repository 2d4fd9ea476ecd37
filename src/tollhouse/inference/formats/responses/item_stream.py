"""Renders the events of one output item, between `output_item.added` and `output_item.done`.

    MessageItemStream      content_part.added  output_text.delta* .done | refusal.delta* .done
                           content_part.done   ... and the next part
    ReasoningItemStream    reasoning_summary_part.added  reasoning_summary_text.delta* .done
                           reasoning_summary_part.done
                           | content_part.added  reasoning_text.delta* .done  content_part.done
    CallItemStream         function_call_arguments.delta* .done | custom_tool_call_input.delta .done

Each yields pairs of an event's type and its fields; the encoder adds the item's position.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.inference.formats.canonical.blocks import (
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.canonical.events import (
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from tollhouse.inference.formats.responses.output_renderer import (
    NO_ARGUMENTS,
    JsonObject,
    call_item,
    content_part,
    message_item,
    reasoning_item,
    reasoning_part,
    text_logprobs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw

    from tollhouse.inference.formats.canonical.blocks import Block
    from tollhouse.inference.formats.canonical.events import BlockDelta, ToolCallStarted

ItemEvent = tuple[str, JsonObject]
_ARGUMENTS: Final = {"function_call": "arguments", "custom_tool_call": "input"}


class _Names(NamedTuple):
    """Names of the events for reasoning text or for its summary."""

    part: str
    text: str
    position: str


_SUMMARY: Final = _Names(
    "response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"
)
_THOUGHTS: Final = _Names("response.content_part", "response.reasoning_text", "content_index")


class MessageItemStream:
    """A message: text and refusals."""

    def __init__(self, id_: str) -> None:
        self._parts: list[JsonObject] = []
        self.item = message_item(id_, self._parts)
        self._is_open = False
        self._tokens: list[Raw] = []

    def add(self, delta: BlockDelta) -> Iterable[ItemEvent]:
        """Return the events of more text."""
        at: JsonObject = {"content_index": len(self._parts)}
        if not self._is_open:
            self._is_open = True
            blank = RefusalBlock("") if isinstance(delta, RefusalDelta) else TextBlock("")
            yield "response.content_part.added", {**at, "part": content_part(blank)}
        if isinstance(delta, RefusalDelta):
            yield "response.refusal.delta", {**at, "delta": delta.text}
        elif isinstance(delta, TextDelta):
            tokens = text_logprobs(delta.logprobs)
            self._tokens += tokens
            yield "response.output_text.delta", {**at, "delta": delta.text, "logprobs": tokens}

    def end(self, block: Block) -> Iterable[ItemEvent]:
        """Return the end of the open part, with its complete text."""
        at: JsonObject = {"content_index": len(self._parts)}
        part = content_part(block, self._tokens)
        if isinstance(block, RefusalBlock):
            yield "response.refusal.done", {**at, "refusal": block.text}
        else:
            text: JsonObject = {"text": part["text"], "logprobs": self._tokens}
            yield "response.output_text.done", {**at, **text}
        yield "response.content_part.done", {**at, "part": part}
        self._parts.append(part)
        self._tokens, self._is_open = [], False


class ReasoningItemStream:
    """The model's reasoning, or a summary of it."""

    def __init__(self, id_: str, *, summarizes: bool) -> None:
        """Start without text.

        Args:
            id_: The item's id.
            summarizes: Whether all reasoning is shown as a summary.
        """
        self.item = reasoning_item(ReasoningBlock(), id_, is_summary=False)
        self._id = id_
        self._summarizes = summarizes
        self._names: _Names | None = None

    def add(self, delta: BlockDelta) -> Iterable[ItemEvent]:
        """Return the events of more reasoning; encrypted content is sent at the end."""
        if not isinstance(delta, ReasoningDelta):
            return
        if self._names is None:
            is_summary = delta.is_summary or self._summarizes
            names = self._names = _SUMMARY if is_summary else _THOUGHTS
            yield f"{names.part}.added", {names.position: 0, "part": self._part("")}
        yield f"{self._names.text}.delta", {self._names.position: 0, "delta": delta.text}

    def end(self, block: Block) -> Iterable[ItemEvent]:
        """Return the end of the text, if there was any."""
        if not isinstance(block, ReasoningBlock):
            return
        if (names := self._names) is not None:
            yield f"{names.text}.done", {names.position: 0, "text": block.text}
            yield f"{names.part}.done", {names.position: 0, "part": self._part(block.text)}
        # The first delta decided whether the client sees a summary.
        self.item = reasoning_item(block, self._id, is_summary=names is _SUMMARY)

    def _part(self, text: str) -> JsonObject:
        return reasoning_part(text, is_summary=self._names is _SUMMARY)


class CallItemStream:
    """A tool call."""

    def __init__(self, id_: str, kind: str, call: ToolCallStarted) -> None:
        self._id = id_
        self._kind = kind
        self._call = call
        self.item: JsonObject = {
            **call_item(ToolCall(call.id, call.name, ""), kind, id_),
            _ARGUMENTS[kind]: "",
        }

    def add(self, delta: BlockDelta) -> Iterable[ItemEvent]:
        """Return the events of more arguments; the text of a custom call is sent at the end."""
        if isinstance(delta, ToolCallDelta) and self._kind == "function_call":
            yield "response.function_call_arguments.delta", {"delta": delta.arguments}

    def end(self, block: Block) -> Iterable[ItemEvent]:
        """Return the end of the arguments, with their complete text."""
        if not isinstance(block, ToolCall):
            return
        self.item = call_item(block, self._kind, self._id)
        name = _ARGUMENTS[self._kind]
        text = self.item[name]
        if self._kind == "function_call":
            if text != block.arguments:
                yield "response.function_call_arguments.delta", {"delta": NO_ARGUMENTS}
            done: JsonObject = {"name": block.name, name: text}
            yield "response.function_call_arguments.done", done
            return
        yield "response.custom_tool_call_input.delta", {"delta": text}
        yield "response.custom_tool_call_input.done", {name: text}


ItemStream = MessageItemStream | ReasoningItemStream | CallItemStream
