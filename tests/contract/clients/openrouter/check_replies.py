"""Has kept replies read by the types of the `openrouter` library.

Its Node edition takes no null as a chunk's fingerprint. Environment: as `replies`.
"""

import json

from openrouter import components, operations
from openrouter.utils import unmarshal_json
from replies import Parser, check_replies


def chunk(text: str) -> None:
    unmarshal_json(text, components.ChatStreamChunk)
    if json.loads(text).get("system_fingerprint", "") is None:
        message = "the system_fingerprint of a chunk is null"
        raise ValueError(message)


check_replies(
    {
        "chat/completions": Parser(
            lambda text: unmarshal_json(text, components.ChatResult),
            chunk,
        ),
        "responses": Parser(
            lambda text: unmarshal_json(text, components.OpenResponsesResult),
            lambda text: unmarshal_json(text, components.StreamEvents),
        ),
        "embeddings": Parser(
            lambda text: unmarshal_json(text, operations.CreateEmbeddingsResponseBody),
            lambda text: unmarshal_json(text, operations.CreateEmbeddingsResponseBody),
        ),
    }
)
