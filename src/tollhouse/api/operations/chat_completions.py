"""`POST /chat/completions`.

Source: https://platform.openai.com/docs/api-reference/chat and the public gateway's additions.
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import (
    COST,
    COUNT,
    END_USER,
    ID,
    IS_BYOK,
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
        "description": "The conversation so far, oldest message first; the model writes the next "
        "one.",
        "items": reference("ChatMessage"),
    },
    stream=STREAM,
    max_tokens=whole(f"{MOST_OUTPUT}. The older name of `max_completion_tokens`."),
    max_completion_tokens=whole(f"{MOST_OUTPUT}."),
    temperature=TEMPERATURE,
    top_p=TOP_P,
    frequency_penalty=number(
        "From -2 to 2: above 0 makes a word less likely each time it was already written."
    ),
    presence_penalty=number(
        "From -2 to 2: above 0 makes every word that was already written less likely, which leads "
        "on to new topics."
    ),
    seed=whole("Equal requests with an equal seed get equal replies, as far as the provider can."),
    stop={
        "description": STOP,
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
            {"type": "null"},
        ],
    },
    tools=listed(TOOLS),
    tool_choice={"description": TOOL_CHOICE},
    response_format={
        "description": 'What the reply has to be: `{"type": "text"}`, any JSON with '
        "`json_object`, or JSON of your schema with `json_schema`."
    },
    user=text(END_USER),
)
_MESSAGE: Final = extensible(
    "ChatMessage",
    "One message of the conversation.",
    ["role"],
    role=text(
        "Whose message it is: `system` or `developer` (your instructions), `user`, `assistant` "
        "(earlier replies) or `tool` (the result of a call)."
    ),
    content={
        "description": "A text, or a list of parts: texts, images, audio, files.",
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
    total_tokens={**COUNT, "description": "Input and output tokens together."},
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
    provider=text("The name of the provider that answered."),
    system_fingerprint={
        "type": ["string", "null"],
        "description": "The provider's configuration, where it names one.",
    },
    choices={
        "type": "array",
        "description": "One reply, or as many as `n` asked for.",
        "items": reference("ChatChoice"),
    },
    usage=reference("ChatUsage"),
)
_CHOICE: Final = extensible(
    "ChatChoice",
    "One reply of the model.",
    ["index", "message", "finish_reason"],
    index={**COUNT, "description": "Which of the replies it is, from 0."},
    message=reference("ChatMessage"),
    finish_reason={
        "type": ["string", "null"],
        "description": "Why the reply ended: `stop` (the model was done), `length` (the token "
        "limit), "
        "`tool_calls` (it waits for results), `content_filter` or `error`.",
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
