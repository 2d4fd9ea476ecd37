"""`POST /embeddings`.

Source: https://platform.openai.com/docs/api-reference/embeddings, and the public gateway.
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
    answers,
    asks_for,
    extensible,
    reference,
    text,
    whole,
)

_TOKENS: Final = {"type": "array", "items": {"type": "integer"}}
_REQUEST: Final = extensible(
    "EmbeddingsRequest",
    "Texts to be embedded. Fields that are not listed here are passed on.",
    ["model", "input"],
    model=MODEL,
    input={
        "description": "What to turn into vectors: a text, or several, each as a text, tokens or "
        "parts; one "
        "vector comes back for each.",
        "anyOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "array",
                "minItems": 1,
                "items": {
                    "anyOf": [
                        {"type": "string"},
                        {"type": "integer"},
                        _TOKENS,
                        {"type": "object", "additionalProperties": True},
                    ]
                },
            },
        ],
    },
    encoding_format={
        "enum": ["float", "base64", None],
        "description": "Vectors as numbers (unless given), or as base64 of 32-bit floats.",
    },
    dimensions=whole("Length of the vectors, where the model lets it be chosen."),
    user=text(END_USER),
)
_USAGE: Final = extensible(
    "EmbeddingsUsage",
    "What the reply took.",
    ["prompt_tokens", "total_tokens"],
    prompt_tokens={**COUNT, "description": "Input tokens."},
    total_tokens={**COUNT, "description": "Equal to `prompt_tokens`: a vector is no output token."},
    cost=COST,
    is_byok=IS_BYOK,
)
_EMBEDDING: Final = extensible(
    "Embedding",
    "The vector of one input.",
    ["object", "embedding", "index"],
    object={"const": "embedding", "description": "Always embedding."},
    index={**COUNT, "description": "Which input it belongs to, from 0."},
    embedding={
        "description": "Numbers, or base64.",
        "anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}],
    },
)
_REPLY: Final = extensible(
    "EmbeddingsReply",
    "The vectors; the provider's further fields are passed on.",
    ["id", "object", "data", "model", "usage"],
    id=ID,
    object={"const": "list", "description": "Always list."},
    model=text("The catalogue's id of the model."),
    provider=text("The name of the provider that answered."),
    data={
        "type": "array",
        "items": reference("Embedding"),
        "description": "One for each input.",
    },
    usage=reference("EmbeddingsUsage"),
)

EMBEDDINGS: Final = HotOperation(
    method="post",
    path="/embeddings",
    operation={
        "tags": ["Embeddings"],
        "summary": "Create Embeddings",
        "description": "Turn texts into vectors whose closeness tells how close the texts are in "
        "meaning, for "
        "search and grouping.",
        "operationId": "create_embeddings",
        "requestBody": asks_for("EmbeddingsRequest"),
        "responses": answers("EmbeddingsReply", "The vectors."),
    },
    schemas={
        "EmbeddingsRequest": _REQUEST,
        "EmbeddingsReply": _REPLY,
        "EmbeddingsUsage": _USAGE,
        "Embedding": _EMBEDDING,
    },
)
