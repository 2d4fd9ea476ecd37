"""Renders a canonical request as the body of a messages request.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.blocks import TextBlock, Turn
from tollhouse.inference.formats.fields import Fields
from tollhouse.inference.formats.messages.model_traits import model_traits
from tollhouse.inference.formats.messages.thinking_plan import (
    ThinkingPlan,
    plan_adaptive,
    plan_budget,
    wants_thinking,
)
from tollhouse.inference.formats.messages.turn_renderer import render_turns
from tollhouse.inference.formats.messages.wire import DEFAULT_MAX_TOKENS
from tollhouse.inference.formats.raw_json import encoder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.inference.formats.canonical.request import CanonicalRequest, ToolDefinition
    from tollhouse.inference.types import Endpoint

_MODES: Final = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}
_TIERS: Final = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
_LEAST_TOP_P: Final = 0.95
"""While the model reasons."""
_NO_PARAMETERS: Final[Mapping[str, object]] = {"type": "object", "properties": {}}
_ONE_TEXT: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
_ANY_OBJECT: Final = (
    "Answer with one valid JSON object and nothing else: no text around it and no code fence."
)
_number: Final = msgspec.json.Decoder(float)
_word: Final = msgspec.json.Decoder(str)
_schema: Final = msgspec.json.Decoder(Fields)


def render_provider_body(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the provider's request body; parameters that the dialect lacks are left out.

    Raises:
        Invalid: The dialect cannot carry content that must not be dropped (audio).
    """
    system, messages = render_turns(_turns(prompt))
    plan = _plan(prompt, endpoint)
    fields: dict[str, object] = {
        "model": endpoint.model,
        "max_tokens": plan.max_tokens,
        "system": system,
        "messages": messages,
        "tools": [_tool(tool) for tool in prompt.tools],
        "tool_choice": _tool_choice(prompt),
        "stop_sequences": [each for each in prompt.stop if each.strip()],
        "thinking": plan.thinking,
        "output_config": _output_config(prompt, plan),
        "metadata": {"user_id": prompt.user} if prompt.user else None,
        "stream": prompt.stream,
    }
    # Anthropic rejects null; an empty list means the same as an absent field.
    present = {name: value for name, value in fields.items() if value or name == "messages"}
    present |= _sampling(prompt, endpoint, thinks=plan.thinking is not None)
    rejected = endpoint.profile.refuses
    return encoder.encode({name: value for name, value in present.items() if name not in rejected})


def _turns(prompt: CanonicalRequest) -> Sequence[Turn]:
    """Return the turns; the dialect has no JSON-object mode, so the model is instructed."""
    if prompt.output is None or prompt.output.schema is not None:
        return prompt.turns
    return (*prompt.turns, Turn("system", (TextBlock(_ANY_OBJECT),)))


def _plan(prompt: CanonicalRequest, endpoint: Endpoint) -> ThinkingPlan:
    most = endpoint.max_completion_tokens
    max_tokens = prompt.max_tokens or most or DEFAULT_MAX_TOKENS
    if prompt.thinking is None or not wants_thinking(prompt):
        return ThinkingPlan(max_tokens)
    if model_traits(endpoint.model).budget:
        return plan_budget(prompt.thinking, max_tokens, most)
    return plan_adaptive(prompt.thinking, max_tokens)


def _tool(tool: ToolDefinition) -> Mapping[str, object]:
    optional = {
        "description": tool.description,
        "strict": tool.strict or None,
        "cache_control": tool.cache,
    }
    present = {name: value for name, value in optional.items() if value is not None}
    return {"name": tool.name, **present, "input_schema": _input_schema(tool)}


def _input_schema(tool: ToolDefinition) -> Mapping[str, object]:
    if tool.freeform:
        return _ONE_TEXT
    if tool.parameters is None:
        return _NO_PARAMETERS
    try:
        # Anthropic requires the type, which every function's schema implies.
        return {"type": "object", **_schema.decode(tool.parameters)}
    except (msgspec.DecodeError, RecursionError):
        return _NO_PARAMETERS


def _tool_choice(prompt: CanonicalRequest) -> Mapping[str, object] | None:
    if not prompt.tools:
        return None
    choice = prompt.tool_choice
    present: dict[str, object] = {"type": _MODES[choice.mode] if choice else "auto"}
    if choice and choice.name is not None:
        present["name"] = choice.name
    if prompt.parallel_tool_calls is False and present["type"] != "none":
        present["disable_parallel_tool_use"] = True
    return present if choice or len(present) > 1 else None


def _output_config(prompt: CanonicalRequest, plan: ThinkingPlan) -> Mapping[str, object]:
    config: dict[str, object] = {}
    if plan.effort is not None:
        config["effort"] = plan.effort
    if prompt.output is not None and prompt.output.schema is not None:
        config["format"] = {"type": "json_schema", "schema": prompt.output.schema}
    return config


def _sampling(prompt: CanonicalRequest, endpoint: Endpoint, *, thinks: bool) -> dict[str, object]:
    given = prompt.sampling
    sampling: dict[str, object] = {}
    if "service_tier" in given and (tier := _tier(given["service_tier"])):
        sampling["service_tier"] = tier
    if not model_traits(endpoint.model).sampling:
        return sampling
    top_p = _float(given.get("top_p"))
    if thinks:
        return sampling | ({"top_p": top_p} if top_p and top_p >= _LEAST_TOP_P else {})
    temperature = _float(given.get("temperature"))
    if "top_k" in given:
        sampling["top_k"] = given["top_k"]
    if temperature is not None:
        # Newer models reject top_p together with temperature.
        return sampling | {"temperature": min(1.0, max(0.0, temperature))}
    return sampling if top_p is None else sampling | {"top_p": top_p}


def _tier(tier: Raw) -> str | None:
    try:
        return _TIERS.get(_word.decode(tier))
    except msgspec.DecodeError:
        return None


def _float(number: Raw | None) -> float | None:
    if number is None:
        return None
    try:
        return _number.decode(number)
    except msgspec.DecodeError:
        return None
