"""`POST /completions`, the legacy one.

Source: https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import (
    ID,
    MODEL,
    MOST_OUTPUT,
    STOP,
    STREAM,
    TEMPERATURE,
    answers,
    asks_for,
    extensible,
    reference,
    text,
    whole,
)

COMPLETIONS: Final = HotOperation(
    method="post",
    path="/completions",
    operation={
        "tags": ["Completions"],
        "summary": "Create Completion",
        "description": "Let a model continue a text, whole or streamed; one that only chats is "
        "asked to answer it.",
        "operationId": "create_completion",
        "requestBody": asks_for("CompletionsRequest"),
        "responses": answers(
            "CompletionsReply",
            "The reply; events where `stream` is true.",
            events="Events `data: <chunk>`; the last chunk carries the usage, and `data: [DONE]` "
            "ends the stream.",
        ),
    },
    schemas={
        "CompletionsRequest": extensible(
            "CompletionsRequest",
            "A text to be continued. Fields that are not listed here are passed on to a provider "
            "of the same format.",
            ["model", "prompt"],
            model=MODEL,
            prompt={
                "description": "The text to continue; models that complete rather than chat also "
                "take "
                "several texts, or tokens.",
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {
                        "type": "array",
                        "minItems": 1,
                        "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                    },
                ],
            },
            stream=STREAM,
            max_tokens=whole(f"{MOST_OUTPUT}."),
            temperature=TEMPERATURE,
            stop={"description": STOP},
        ),
        "CompletionsReply": extensible(
            "CompletionsReply",
            "A whole reply.",
            ["id", "object", "created", "model", "choices"],
            id=ID,
            object={"const": "text_completion", "description": "Always text_completion."},
            created={"type": "integer", "description": "Unix seconds."},
            model=text("The catalogue's id of the model."),
            choices={
                "type": "array",
                "items": {"type": "object", "additionalProperties": True},
                "description": "The texts with which the model goes on, as many as `n` asked for.",
            },
            usage=reference("ChatUsage"),
        ),
    },
)
