"""`POST /responses`.

Source: https://platform.openai.com/docs/api-reference/responses and the public gateway's additions.
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import (
    COST,
    COUNT,
    END_USER,
    ID,
    MODEL,
    MOST_OUTPUT,
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

_REQUEST: Final = extensible(
    "ResponsesRequest",
    "A request without memory: the whole conversation comes along. Fields that are not listed here "
    "are passed on to a provider of the same format.",
    ["model", "input"],
    model=MODEL,
    input={
        "description": "What the model answers: a text, or the conversation as a list of items "
        "(messages, calls, "
        "results of calls, reasoning).",
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "minItems": 1, "items": {"type": "object"}},
        ],
    },
    instructions={
        "type": ["string", "null"],
        "description": "Your instructions to the model, which come before the input.",
    },
    stream=STREAM,
    store={"enum": [False, None], "description": "Replies are not stored: only false or null."},
    previous_response_id={
        "type": "null",
        "description": "Earlier replies are not stored: send the whole conversation as `input`.",
    },
    max_output_tokens=whole(f"{MOST_OUTPUT}."),
    temperature=TEMPERATURE,
    top_p=TOP_P,
    tools=listed(TOOLS),
    tool_choice={"description": TOOL_CHOICE},
    reasoning={
        "description": "How much the model thinks before it answers (`effort`), and whether the "
        "reply tells it "
        "in short (`summary`)."
    },
    text={"description": "What the reply has to be: text, or JSON of your schema (`format`)."},
    include={
        "description": "Parts of the reply that are left out unless they stand here, such as "
        "`reasoning.encrypted_content`."
    },
    user={"type": ["string", "null"], "description": END_USER},
)
_USAGE: Final = extensible(
    "ResponsesUsage",
    "What the reply took.",
    ["input_tokens", "output_tokens", "total_tokens"],
    input_tokens={**COUNT, "description": "Input tokens, cached ones included."},
    output_tokens={**COUNT, "description": "Output tokens, reasoning included."},
    total_tokens={**COUNT, "description": "Input and output tokens together."},
    cost=COST,
)
_REPLY: Final = extensible(
    "ResponsesReply",
    "A whole reply; the provider's further fields are passed on.",
    ["id", "object", "created_at", "status", "model", "output"],
    id=ID,
    object={"const": "response", "description": "Always response."},
    created_at={"type": "integer", "description": "Unix seconds."},
    status=text("completed, or incomplete with `incomplete_details`."),
    model=text("The catalogue's id of the model."),
    output={
        "type": "array",
        "items": {"type": "object", "additionalProperties": True},
        "description": "Messages, reasoning and calls, in order.",
    },
    usage=reference("ResponsesUsage"),
)
RESPONSES: Final = HotOperation(
    method="post",
    path="/responses",
    operation={
        "tags": ["Responses"],
        "summary": "Create Response",
        "description": "Ask a model in the format of OpenAI's responses, whole or streamed.",
        "operationId": "create_response",
        "requestBody": asks_for("ResponsesRequest"),
        "responses": answers(
            "ResponsesReply",
            "The reply; events where `stream` is true.",
            events="Events from response.created to response.completed, response.incomplete or "
            "response.failed, then `data: [DONE]`.",
        ),
    },
    schemas={
        "ResponsesRequest": _REQUEST,
        "ResponsesReply": _REPLY,
        "ResponsesUsage": _USAGE,
    },
)
