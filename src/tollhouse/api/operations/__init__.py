"""What the OpenAPI document says of the hot routes, which no framework describes."""

from typing import Final

from tollhouse.api.operations.chat_completions import CHAT_COMPLETIONS
from tollhouse.api.operations.completions import COMPLETIONS
from tollhouse.api.operations.embeddings import EMBEDDINGS
from tollhouse.api.operations.estimate import ESTIMATE
from tollhouse.api.operations.messages import COUNT_TOKENS, MESSAGES
from tollhouse.api.operations.responses import RESPONSES

HOT_OPERATIONS: Final = (
    CHAT_COMPLETIONS,
    RESPONSES,
    MESSAGES,
    COUNT_TOKENS,
    COMPLETIONS,
    EMBEDDINGS,
    ESTIMATE,
)
