"""Why a model stopped: the words of all known servers, and what they are in the clients' formats.

Sources: the API references of OpenAI (chat, completions), Anthropic (stop_reason), Google
(FinishReason), Mistral, Cohere, DeepSeek, Zhipu and Amazon Bedrock (stopReason), and the sources of
vLLM, SGLang, llama.cpp, TGI and Ollama.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.formats.canonical import FinishReason

WORDS: Final[Mapping[FinishReason, str]] = {
    "stop": "stop stop_sequence stop_token stopped end end_turn end_of_turn end_of_text eos"
    " eos_token eot complete completed done finished pause_turn compaction",
    "length": "length max_tokens max_length max_output_tokens max_completion_tokens model_length"
    " model_context_window_exceeded context_length context_window_exceeded token_limit"
    " limit truncated",
    "tool_calls": "tool_calls tool_call tool_use function_call function_calls",
    "content_filter": "content_filter content_filtered content_policy content_policy_violation"
    " refusal safety recitation language blocklist prohibited_content spii image_safety"
    " image_prohibited_content image_recitation model_armor guardrail_intervened sensitive",
    # The provider ended the reply before it was complete.
    "error": "error error_toxic error_limit failed failure interrupted abort aborted cancelled"
    " canceled timeout preempted insufficient_system_resource network_error server_error"
    " malformed_function_call malformed_response malformed_model_output malformed_tool_use"
    " unexpected_tool_call too_many_tool_calls missing_thought_signature no_image image_other"
    " repetition other",
}
"""Each normalized reason, with the words for it in small letters."""
_REASONS: Final[Mapping[str, FinishReason]] = {
    word: reason for reason, words in WORDS.items() for word in words.split()
}


def normalize_finish_reason(native: str | None, *, called: bool = False) -> FinishReason | None:
    """Return the normalized finish reason; None for null or an empty string.

    Some servers send `stop` with a tool call. A word that nobody knows is `length`: the reply may
    be incomplete, and must not pass for a whole one.
    """
    return final_reason(native, called=called) if native else None


def final_reason(native: str | None, *, called: bool) -> FinishReason:
    """Return the same of a whole reply, which has ended even where none is given."""
    native = native or "stop"
    reason = _REASONS.get(native) or _REASONS.get(_usual_spelling(native), "length")
    return "tool_calls" if called and reason == "stop" else reason


def is_known(native: str | None) -> bool:
    """Tell whether a provider's word is one of those that are known, or there is none."""
    return not native or native in _REASONS or _usual_spelling(native) in _REASONS


_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|-")


def _usual_spelling(native: str) -> str:
    """Return a word in any spelling (`MaxTokens`, `max-tokens`, `FINISH_REASON_...`) as above."""
    return _HUMP.sub("_", native).lower().removeprefix("finish_reason_")
