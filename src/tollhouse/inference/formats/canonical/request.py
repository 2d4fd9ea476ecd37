"""The canonical request.

Parameters with the same name and meaning in every format that has them are kept in `sampling` as
raw JSON; a parameter that differs between formats has a field of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from tollhouse.inference.formats.canonical.blocks import RedactedStruct, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw


class ToolDefinition(RedactedStruct, frozen=True):
    """A tool that the client runs."""

    name: str
    description: str | None = None
    parameters: Raw | None = None
    """A JSON schema; None for a function without parameters."""
    strict: bool | None = None
    cache: Raw | None = None
    freeform: bool = False
    """Takes text instead of an object; in formats without such tools, an object with `input`."""


class CanonicalToolChoice(RedactedStruct, frozen=True):
    """Which tools the model may or must call."""

    mode: Literal["auto", "none", "required", "named"]
    name: str | None = None
    """The tool that must be called if the mode is `named`."""


class JsonOutput(RedactedStruct, frozen=True):
    """Requires JSON output."""

    schema: Raw | None = None
    """The JSON schema; None for any object."""
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ThinkingOptions(RedactedStruct, frozen=True):
    """How much the model reasons, and whether the response shows it."""

    effort: str | None = None
    """none, minimal, low, medium, high, xhigh or max."""
    budget_tokens: int | None = None
    enabled: bool | None = None
    """True: the model decides how much; False: not at all."""
    summary: str | None = None
    """auto, concise or detailed if the client wants a summary of the reasoning."""
    exclude: bool = False
    """Reason, but leave the reasoning out of the response."""


class CanonicalRequest(RedactedStruct, frozen=True):
    """A request in canonical form."""

    turns: tuple[Turn, ...]
    stream: bool = False
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: CanonicalToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    output: JsonOutput | None = None
    thinking: ThinkingOptions | None = None
    verbosity: str | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    choices: int | None = None
    """How many choices are generated (`n`)."""
    user: str | None = None
    """The client's identifier of its end user."""
    metadata: Raw | None = None
    """A map of strings, stored by the provider."""
    sampling: Mapping[str, Raw] = {}
    """temperature, top_p, top_k, min_p, top_a, frequency_penalty, presence_penalty,
    repetition_penalty, seed, logit_bias, prompt_cache_key, service_tier, safety_identifier."""


def given_parameters(prompt: CanonicalRequest) -> frozenset[str]:
    """Return the names of the parameters that a request sets: its fields and its sampling."""
    own = {name for name in _PARAMETERS if getattr(prompt, name) != _DEFAULTS[name]}
    return frozenset(own | prompt.sampling.keys())


def without_turns(prompt: CanonicalRequest) -> CanonicalRequest:
    """Return what rendering a response needs: no turns, and no tools that no response refers to.

    A tool is kept so that `given_parameters` stays the same.
    """
    tools = tuple(tool for tool in prompt.tools if tool.freeform) or prompt.tools[:1]
    return replace(prompt, turns=(), tools=tools)


_PARAMETERS: Final = frozenset(CanonicalRequest.__struct_fields__) - {"turns", "stream", "sampling"}
_DEFAULTS: Final = {name: getattr(CanonicalRequest(()), name) for name in _PARAMETERS}
