"""Renders a canonical request as the body of a responses request.

Parameters that the dialect lacks are left out: stop sequences, penalties, a seed, top_k, several
choices and cache breakpoints.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.canonical.blocks import ReasoningBlock, TextBlock
from tollhouse.inference.formats.canonical.reasoning import OPENAI
from tollhouse.inference.formats.raw_json import encoder
from tollhouse.inference.formats.responses.canonical_request import LOGPROBS
from tollhouse.inference.formats.responses.input_renderer import render_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.formats.canonical.blocks import Turn
    from tollhouse.inference.formats.canonical.request import (
        CanonicalRequest,
        CanonicalToolChoice,
        JsonOutput,
        ThinkingOptions,
        ToolDefinition,
    )
    from tollhouse.inference.types import Endpoint

_ENCRYPTED: Final = "reasoning.encrypted_content"
_SAMPLING: Final = (
    "temperature",
    "top_p",
    "prompt_cache_key",
    "service_tier",
    "safety_identifier",
)
_LEAST_OUTPUT: Final = 16
"""OpenAI rejects a smaller `max_output_tokens`."""
_EFFORTS: Final = ((16_000, "high"), (4_000, "medium"), (1, "low"))
"""The minimum budget in tokens for each effort; the dialect has no budgets."""


def render_provider_body(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the provider's request body."""
    rejected = endpoint.profile.refuses
    fields = _fields(prompt, endpoint.model)
    return encoder.encode(
        {
            name: value
            for name, value in fields.items()
            if value is not None and name not in rejected
        }
    )


def _fields(prompt: CanonicalRequest, model: str) -> dict[str, object]:
    """Return every field; None for one that is left out."""
    leading, turns = _leading(prompt.turns)
    freeform = frozenset(tool.name for tool in prompt.tools if tool.freeform)
    choice = prompt.tool_choice if prompt.tools else None
    return {
        "model": model,
        "instructions": leading,
        "input": render_input(turns, freeform),
        "stream": prompt.stream or None,
        "store": False,
        "include": _include(prompt) or None,
        "tools": [_tool(tool) for tool in prompt.tools] or None,
        "tool_choice": _tool_choice(choice, freeform) if choice else None,
        "parallel_tool_calls": prompt.parallel_tool_calls if prompt.tools else None,
        "max_output_tokens": _max_output(prompt.max_tokens),
        "text": _text(prompt) or None,
        "reasoning": (_reasoning(prompt.thinking) or None) if prompt.thinking else None,
        "top_logprobs": prompt.top_logprobs,
        "user": prompt.user,
        "metadata": prompt.metadata,
        **{name: prompt.sampling.get(name) for name in _SAMPLING},
    }


def _leading(turns: Sequence[Turn]) -> tuple[str | None, Sequence[Turn]]:
    """Return the text of the leading system turns, and the turns after them.

    The input must not be empty, so system turns alone stay where they are.
    """
    count = next((at for at, turn in enumerate(turns) if turn.role != "system"), 0)
    texts = [
        block.text
        for turn in turns[:count]
        for block in turn.blocks
        if isinstance(block, TextBlock)
    ]
    return "\n\n".join(texts) or None, turns[count:]


def _include(prompt: CanonicalRequest) -> list[str]:
    """Return the values of `include`.

    OpenAI rejects a request for encrypted reasoning if the model does not reason, so it is sent
    only if reasoning is enabled or the conversation has some.
    """
    include = [_ENCRYPTED] if _reasons(prompt) else []
    return [*include, LOGPROBS] if prompt.logprobs else include


def _reasons(prompt: CanonicalRequest) -> bool:
    thinking = prompt.thinking
    if thinking is not None:
        return not _is_off(thinking)
    return any(
        isinstance(block, ReasoningBlock) and block.format == OPENAI and bool(block.encrypted)
        for turn in prompt.turns
        for block in turn.blocks
    )


def _is_off(thinking: ThinkingOptions) -> bool:
    return thinking.enabled is False or thinking.effort == "none"


def _max_output(wanted: int | None) -> int | None:
    return None if wanted is None else max(_LEAST_OUTPUT, wanted)


def _tool(tool: ToolDefinition) -> dict[str, object]:
    described = {} if tool.description is None else {"description": tool.description}
    if tool.freeform:
        return {"type": "custom", "name": tool.name, **described}
    return {
        "type": "function",
        "name": tool.name,
        **described,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        # The dialect defaults to strict, which rejects many schemas.
        "strict": bool(tool.strict),
    }


def _tool_choice(choice: CanonicalToolChoice, freeform: frozenset[str]) -> object:
    if choice.mode != "named":
        return choice.mode
    return {"type": "custom" if choice.name in freeform else "function", "name": choice.name}


def _text(prompt: CanonicalRequest) -> dict[str, object]:
    text: dict[str, object] = {}
    if prompt.output is not None:
        text["format"] = _format(prompt.output)
    if prompt.verbosity is not None:
        text["verbosity"] = prompt.verbosity
    return text


def _format(output: JsonOutput) -> dict[str, object]:
    if output.schema is None:
        return {"type": "json_object"}
    optional = {"description": output.description, "strict": output.strict}
    return {
        "type": "json_schema",
        "name": output.name or "answer",
        "schema": output.schema,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _reasoning(thinking: ThinkingOptions) -> dict[str, object]:
    if thinking.enabled is False:
        return {}
    effort = _effort(thinking)
    # OpenAI sends only summaries; a client that enables reasoning expects some text.
    shown = not thinking.exclude and effort != "none"
    fields = {"effort": effort, "summary": (thinking.summary or "auto") if shown else None}
    return {name: value for name, value in fields.items() if value is not None}


def _effort(thinking: ThinkingOptions) -> str | None:
    if thinking.effort is not None or thinking.budget_tokens is None:
        return thinking.effort
    budget = thinking.budget_tokens
    return next((effort for least, effort in _EFFORTS if budget >= least), None)
