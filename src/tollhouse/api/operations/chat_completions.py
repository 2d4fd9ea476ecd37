"""`POST /chat/completions`.

Source: https://platform.openai.com/docs/api-reference/chat and the public gateway's additions.
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import (
    COUNT,
    GENERATION_ID,
    NUMBER_OR_NULL,
    REFUSALS,
    number,
    text,
    whole,
)

_REQUEST: Final = {
    "title": "ChatRequest",
    "type": "object",
    "description": "A chat request. Fields that are not listed here are passed on as they are.",
    "required": ["model", "messages"],
    "additionalProperties": True,
    "properties": {
        "model": text("Id of a model in the catalogue.", minLength=1),
        "messages": {
            "type": "array",
            "minItems": 1,
            "description": "The conversation.",
            "items": {"$ref": "#/components/schemas/ChatMessage"},
        },
        "stream": {
            "type": ["boolean", "null"],
            "default": False,
            "description": "Send the reply as events while it is made.",
        },
        "max_tokens": whole("Most output tokens."),
        "max_completion_tokens": whole("Most output tokens, reasoning included."),
        "temperature": number("Randomness."),
        "top_p": number("Share of probability that is drawn from."),
        "frequency_penalty": number("Against repeating words."),
        "presence_penalty": number("Against repeating topics."),
        "seed": whole("For replies that can be repeated."),
        "stop": {
            "description": "Texts at which the reply ends.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "null"},
            ],
        },
        "tools": {
            "type": ["array", "null"],
            "items": {"type": "object", "additionalProperties": True},
            "description": "Functions that the model may call.",
        },
        "tool_choice": {"description": "Whether and which function it has to call."},
        "response_format": {"description": "Text, or JSON of a schema."},
        "user": text("The end user, for the statement."),
    },
}
_MESSAGE: Final = {
    "title": "ChatMessage",
    "type": "object",
    "description": "A message.",
    "required": ["role"],
    "additionalProperties": True,
    "properties": {
        "role": text("system, developer, user, assistant or tool."),
        "content": {
            "description": "A text, or a list of parts.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "object", "additionalProperties": True}},
                {"type": "null"},
            ],
        },
    },
}
_USAGE: Final = {
    "title": "ChatUsage",
    "type": "object",
    "description": "What the reply took.",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "additionalProperties": True,
    "properties": {
        "prompt_tokens": {**COUNT, "description": "Input tokens, cached ones included."},
        "completion_tokens": {**COUNT, "description": "Output tokens, reasoning included."},
        "total_tokens": {**COUNT, "description": "Both."},
        "cost": {**NUMBER_OR_NULL, "description": "Credits charged; null where not known."},
        "is_byok": {"type": "boolean", "description": "Whether an own provider key was used."},
    },
}
_REPLY: Final = {
    "title": "ChatReply",
    "type": "object",
    "description": "A whole reply; the provider's further fields are passed on.",
    "required": ["id", "object", "created", "model", "choices", "system_fingerprint"],
    "additionalProperties": True,
    "properties": {
        "id": text("Equals X-Generation-Id; `GET /generation` knows it."),
        "object": {"const": "chat.completion", "description": "Always chat.completion."},
        "created": {"type": "integer", "description": "Unix seconds."},
        "model": text("The catalogue's id of the model."),
        "provider": text("Who answered."),
        "system_fingerprint": {
            "type": ["string", "null"],
            "description": "The provider's configuration, where it names one.",
        },
        "choices": {
            "type": "array",
            "description": "The answers.",
            "items": {"$ref": "#/components/schemas/ChatChoice"},
        },
        "usage": {"$ref": "#/components/schemas/ChatUsage"},
    },
}
_CHOICE: Final = {
    "title": "ChatChoice",
    "type": "object",
    "description": "An answer.",
    "required": ["index", "message", "finish_reason"],
    "additionalProperties": True,
    "properties": {
        "index": {**COUNT, "description": "Its number."},
        "message": {"$ref": "#/components/schemas/ChatMessage"},
        "finish_reason": {
            "type": ["string", "null"],
            "description": "stop, length, tool_calls, content_filter or error.",
        },
    },
}
_EVENTS: Final = text(
    "Events `data: <chunk>`; the last chunk carries the usage, and `data: [DONE]` ends the "
    "stream. A failure after the first byte is a chunk with `error` and finish_reason error."
)
CHAT_COMPLETIONS: Final = HotOperation(
    method="post",
    path="/chat/completions",
    operation={
        "tags": ["Chat"],
        "summary": "Create Chat Completion",
        "description": "Ask a model for the next message of a conversation, whole or streamed.",
        "operationId": "create_chat_completion",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/ChatRequest"}}
            },
        },
        "responses": {
            "200": {
                "description": "The reply; events where `stream` is true.",
                "headers": GENERATION_ID,
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/ChatReply"}},
                    "text/event-stream": {"schema": _EVENTS},
                },
            },
            **REFUSALS,
        },
    },
    schemas={
        "ChatRequest": _REQUEST,
        "ChatMessage": _MESSAGE,
        "ChatReply": _REPLY,
        "ChatChoice": _CHOICE,
        "ChatUsage": _USAGE,
    },
)
