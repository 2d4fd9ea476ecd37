"""`POST /embeddings`.

Source: https://platform.openai.com/docs/api-reference/embeddings, and the public gateway.
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import (
    COUNT,
    GENERATION_ID,
    NUMBER_OR_NULL,
    REFUSALS,
    text,
    whole,
)

_TOKENS: Final = {"type": "array", "items": {"type": "integer"}}
_REQUEST: Final = {
    "title": "EmbeddingsRequest",
    "type": "object",
    "description": "Texts to be embedded. Fields that are not listed here are passed on.",
    "required": ["model", "input"],
    "additionalProperties": True,
    "properties": {
        "model": text("Id of a model in the catalogue.", minLength=1),
        "input": {
            "description": "A text, texts, tokens, lists of tokens, or lists of parts.",
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
        "encoding_format": {
            "enum": ["float", "base64", None],
            "description": "Vectors as numbers (unless given), or as base64 of 32-bit floats.",
        },
        "dimensions": whole("Length of the vectors, where the model lets it be chosen."),
        "user": text("The end user, for the statement."),
    },
}
_USAGE: Final = {
    "title": "EmbeddingsUsage",
    "type": "object",
    "description": "What the reply took.",
    "required": ["prompt_tokens", "total_tokens"],
    "additionalProperties": True,
    "properties": {
        "prompt_tokens": {**COUNT, "description": "Input tokens."},
        "total_tokens": {**COUNT, "description": "The same."},
        "cost": {**NUMBER_OR_NULL, "description": "Credits charged; null where not known."},
        "is_byok": {"type": "boolean", "description": "Whether an own provider key was used."},
    },
}
_EMBEDDING: Final = {
    "title": "Embedding",
    "type": "object",
    "description": "The vector of one input.",
    "required": ["object", "embedding", "index"],
    "additionalProperties": True,
    "properties": {
        "object": {"const": "embedding", "description": "Always embedding."},
        "index": {**COUNT, "description": "Which input it belongs to."},
        "embedding": {
            "description": "Numbers, or base64.",
            "anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}],
        },
    },
}
_REPLY: Final = {
    "title": "EmbeddingsReply",
    "type": "object",
    "description": "The vectors; the provider's further fields are passed on.",
    "required": ["id", "object", "data", "model", "usage"],
    "additionalProperties": True,
    "properties": {
        "id": text("Equals X-Generation-Id; `GET /generation` knows it."),
        "object": {"const": "list", "description": "Always list."},
        "model": text("The catalogue's id of the model."),
        "provider": text("Who answered."),
        "data": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/Embedding"},
            "description": "One for each input.",
        },
        "usage": {"$ref": "#/components/schemas/EmbeddingsUsage"},
    },
}

EMBEDDINGS: Final = HotOperation(
    method="post",
    path="/embeddings",
    operation={
        "tags": ["Embeddings"],
        "summary": "Create Embeddings",
        "description": "Turn texts into vectors.",
        "operationId": "create_embeddings",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/EmbeddingsRequest"}}
            },
        },
        "responses": {
            "200": {
                "description": "The vectors.",
                "headers": GENERATION_ID,
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/EmbeddingsReply"}}
                },
            },
            **REFUSALS,
        },
    },
    schemas={
        "EmbeddingsRequest": _REQUEST,
        "EmbeddingsReply": _REPLY,
        "EmbeddingsUsage": _USAGE,
        "Embedding": _EMBEDDING,
    },
)
