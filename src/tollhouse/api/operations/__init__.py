"""What the OpenAPI document says of the hot routes, which no framework describes."""

from typing import Final

from tollhouse.api.operations.chat_completions import CHAT_COMPLETIONS
from tollhouse.api.operations.embeddings import EMBEDDINGS

HOT_OPERATIONS: Final = (CHAT_COMPLETIONS, EMBEDDINGS)
