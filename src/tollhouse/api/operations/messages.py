"""`POST /messages` and `POST /messages/count_tokens`.

Source: https://docs.anthropic.com/en/api/messages and the public gateway's additions.
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import ERROR_SCHEMA, HotOperation
from tollhouse.api.operations.schemas import (
    COST,
    COUNT,
    END_USER,
    ID,
    MODEL,
    MOST_OUTPUT,
    STOP,
    STREAM,
    TEMPERATURE,
    TOOL_CHOICE,
    TOOLS,
    TOP_P,
    answers,
    asks_for,
    extensible,
    listed,
    reference,
    text,
    whole,
)

_MESSAGES: Final = {
    "type": "array",
    "minItems": 1,
    "description": "The conversation so far, oldest first: turns of `user` and `assistant`, each "
    "with a text or a list of blocks. The model writes the next turn.",
    "items": {"type": "object", "additionalProperties": True},
}
_SYSTEM: Final = {
    "description": "What the model is told first: a text, or a list of blocks.",
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "object", "additionalProperties": True}},
        {"type": "null"},
    ],
}
_REQUEST: Final = extensible(
    "MessagesRequest",
    "A request in Anthropic's format. Fields that are not listed here, query parameters and beta "
    "headers are passed on to a provider of the same format.",
    ["model", "messages"],
    model=MODEL,
    messages=_MESSAGES,
    system=_SYSTEM,
    max_tokens=whole(f"{MOST_OUTPUT}.", minimum=1),
    stream=STREAM,
    temperature=TEMPERATURE,
    top_p=TOP_P,
    top_k=whole("Consider only this many of the likeliest next tokens."),
    stop_sequences={"description": STOP},
    tools=listed(TOOLS),
    tool_choice={"description": TOOL_CHOICE},
    thinking={
        "description": "Whether the model thinks before it answers, and how many tokens it may "
        "use for that."
    },
    metadata={"description": f"`user_id`: {END_USER[0].lower()}{END_USER[1:]}"},
)
_USAGE: Final = extensible(
    "MessagesUsage",
    "What the reply took.",
    ["input_tokens", "output_tokens"],
    input_tokens={**COUNT, "description": "Input tokens that no cache had."},
    output_tokens={**COUNT, "description": "Output tokens, thinking included."},
    cost=COST,
)
_REPLY: Final = extensible(
    "MessagesReply",
    "A whole reply; the provider's further fields are passed on.",
    ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
    id=ID,
    type={"const": "message", "description": "Always message."},
    role={"const": "assistant", "description": "Always assistant."},
    model=text("The catalogue's id of the model."),
    content={
        "type": "array",
        "items": {"type": "object", "additionalProperties": True},
        "description": "Text, thinking and calls, in order.",
    },
    stop_reason={
        "type": ["string", "null"],
        "description": "Why the reply ended: `end_turn`, `max_tokens`, `stop_sequence`, "
        "`tool_use` or `refusal`.",
    },
    stop_sequence={
        "type": ["string", "null"],
        "description": "Which of `stop_sequences` ended it; null otherwise.",
    },
    usage=reference("MessagesUsage"),
)
_ERROR: Final = extensible(
    "MessagesError",
    "The envelope of Anthropic's errors.",
    ["type", "error", "request_id"],
    type={"const": "error", "description": "Always error."},
    error=extensible(
        "MessagesErrorObject",
        "What happened.",
        ["type", "message"],
        type=text("Anthropic's word for it, such as invalid_request_error."),
        message=text("What happened and what to do."),
        error_type=text("The stable name that all formats share."),
    ),
    request_id={
        "type": ["string", "null"],
        "description": "The generation's id; null where the request got no further.",
    },
)
MESSAGES: Final = HotOperation(
    method="post",
    path="/messages",
    operation={
        "tags": ["Messages"],
        "summary": "Create Message",
        "description": "Ask a model in the format of Anthropic's messages, whole or streamed. "
        "`x-api-key` is as good as a bearer token; errors are in Anthropic's envelope.",
        "operationId": "create_message",
        ERROR_SCHEMA: "MessagesError",
        "requestBody": asks_for("MessagesRequest"),
        "responses": answers(
            "MessagesReply",
            "The reply; events where `stream` is true.",
            events="Events from message_start to message_stop, or to an error.",
        ),
    },
    schemas={
        "MessagesRequest": _REQUEST,
        "MessagesReply": _REPLY,
        "MessagesUsage": _USAGE,
        "MessagesError": _ERROR,
    },
)
COUNT_TOKENS: Final = HotOperation(
    method="post",
    path="/messages/count_tokens",
    operation={
        "tags": ["Messages"],
        "summary": "Count Tokens",
        "description": "Count the input tokens of a message, free of charge: by the provider, or "
        "estimated from its size where the provider does not count.",
        "operationId": "count_message_tokens",
        ERROR_SCHEMA: "MessagesError",
        "requestBody": asks_for("CountTokensRequest"),
        "responses": answers("CountTokensReply", "The count.", booked=False),
    },
    schemas={
        "CountTokensRequest": extensible(
            "CountTokensRequest",
            "The same fields as for a message.",
            ["model", "messages"],
            model=MODEL,
            messages=_MESSAGES,
            system=_SYSTEM,
            tools=listed(TOOLS),
        ),
        "CountTokensReply": extensible(
            "CountTokensReply",
            "The count.",
            ["input_tokens"],
            input_tokens={**COUNT, "description": "Tokens of the whole input."},
        ),
    },
)
