"""`POST /chat/completions`.

Source: https://platform.openai.com/docs/api-reference/chat and the public gateway's additions.
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import (
    COST,
    COUNT,
    ID,
    IS_BYOK,
    MODEL,
    STREAM,
    answers,
    asks_for,
    extensible,
    listed,
    number,
    reference,
    text,
    whole,
)

_REQUEST: Final = extensible(
    "ChatRequest",
    "A chat request. Fields that are not listed here are passed on as they are.",
    ["model", "messages"],
    model=MODEL,
    messages={
        "type": "array",
        "minItems": 1,
        "description": "The conversation.",
        "items": reference("ChatMessage"),
    },
    stream=STREAM,
    max_tokens=whole("Most output tokens."),
    max_completion_tokens=whole("Most output tokens, reasoning included."),
    temperature=number("Randomness."),
    top_p=number("Share of probability that is drawn from."),
    frequency_penalty=number("Against repeating words."),
    presence_penalty=number("Against repeating topics."),
    seed=whole("For replies that can be repeated."),
    stop={
        "description": "Texts at which the reply ends.",
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
            {"type": "null"},
        ],
    },
    tools=listed("Functions that the model may call."),
    tool_choice={"description": "Whether and which function it has to call."},
    response_format={"description": "Text, or JSON of a schema."},
    user=text("The end user, for the statement."),
)
_MESSAGE: Final = extensible(
    "ChatMessage",
    "A message.",
    ["role"],
    role=text("system, developer, user, assistant or tool."),
    content={
        "description": "A text, or a list of parts.",
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "object", "additionalProperties": True}},
            {"type": "null"},
        ],
    },
)
_USAGE: Final = extensible(
    "ChatUsage",
    "What the reply took.",
    ["prompt_tokens", "completion_tokens", "total_tokens"],
    prompt_tokens={**COUNT, "description": "Input tokens, cached ones included."},
    completion_tokens={**COUNT, "description": "Output tokens, reasoning included."},
    total_tokens={**COUNT, "description": "Both."},
    cost=COST,
    is_byok=IS_BYOK,
)
_REPLY: Final = extensible(
    "ChatReply",
    "A whole reply; the provider's further fields are passed on.",
    ["id", "object", "created", "model", "choices", "system_fingerprint"],
    id=ID,
    object={"const": "chat.completion", "description": "Always chat.completion."},
    created={"type": "integer", "description": "Unix seconds."},
    model=text("The catalogue's id of the model."),
    provider=text("Who answered."),
    system_fingerprint={
        "type": ["string", "null"],
        "description": "The provider's configuration, where it names one.",
    },
    choices={
        "type": "array",
        "description": "The answers.",
        "items": reference("ChatChoice"),
    },
    usage=reference("ChatUsage"),
)
_CHOICE: Final = extensible(
    "ChatChoice",
    "An answer.",
    ["index", "message", "finish_reason"],
    index={**COUNT, "description": "Its number."},
    message=reference("ChatMessage"),
    finish_reason={
        "type": ["string", "null"],
        "description": "stop, length, tool_calls, content_filter or error.",
    },
)
CHAT_COMPLETIONS: Final = HotOperation(
    method="post",
    path="/chat/completions",
    operation={
        "tags": ["Chat"],
        "summary": "Create Chat Completion",
        "description": "Ask a model for the next message of a conversation, whole or streamed.",
        "operationId": "create_chat_completion",
        "requestBody": asks_for("ChatRequest"),
        "responses": answers(
            "ChatReply",
            "The reply; events where `stream` is true.",
            events="Events `data: <chunk>`; the last chunk carries the usage, and `data: [DONE]` "
            "ends the stream. A failure after the first byte is a chunk with `error` and "
            "finish_reason error.",
        ),
    },
    schemas={
        "ChatRequest": _REQUEST,
        "ChatMessage": _MESSAGE,
        "ChatReply": _REPLY,
        "ChatChoice": _CHOICE,
        "ChatUsage": _USAGE,
    },
)
