"""How a client is told that its prompt is longer than a model's context. Pure.

Clients that shorten the conversation and try again know this error by its words, whatever the
format:

    prompt is too long: N tokens > M maximum       Claude Code, langchain-anthropic
    exceeds the context window                     langchain-openai
    this model's maximum context length is         LiteLLM, CrewAI, Cline
"""

from __future__ import annotations

import re
from typing import Final

_NUMBERS: Final = (
    re.compile(r"(?P<tokens>\d{1,12}) tokens? ?> ?(?P<most>\d{1,12})"),
    re.compile(
        r"maximum context length (?:is|of) (?P<most>\d{1,12}) tokens.{0,60}?"
        r"(?:resulted in|requested|request has|contains)(?: about)? (?P<tokens>\d{1,12})"
    ),
    re.compile(r"token count \((?P<tokens>\d{1,12})\).{0,60}?allowed \((?P<most>\d{1,12})\)"),
)
"""How Anthropic, OpenAI and vLLM, and Google say how many there were, and are at most."""


def too_long(said: str, estimated_tokens: int, context_length: int) -> str:
    """Return the message of a refusal whose prompt was too long.

    Args:
        said: What the provider said; its numbers hold where it gave any.
        estimated_tokens: Of the prompt.
        context_length: The model's, in tokens.
    """
    tokens, most = _numbers(said) or (estimated_tokens, context_length)
    return (
        f"prompt is too long: {max(tokens, most + 1)} tokens > {most} maximum. "
        f"It exceeds the context window: this model's maximum context length is {most} tokens. "
        f"{said}"
    )


def _numbers(said: str) -> tuple[int, int] | None:
    found = next((match for each in _NUMBERS if (match := each.search(said))), None)
    return None if found is None else (int(found["tokens"]), int(found["most"]))
