"""From a provider's status and words to our errors: the rule that every HTTP provider shares. Pure.

A provider that does not accept the gateway's own credentials (401, 402, 403) or does not know the
model (404) failed us, not the caller: the caller can change nothing about it.

Which of the wire's error types a refused request gets, providers say in a code of their own, or
only in words.

Source: the public gateway's error reference for the types; for the codes
https://platform.openai.com/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors and
https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter.
"""

from __future__ import annotations

import re
from typing import Final

from tollhouse.inference.formats.error_codes import MODERATION_CODES, TYPE_BY_CODE, status_of_code
from tollhouse.kernel.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    STATUS,
    ProviderFailure,
    ProviderModerated,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
)

_ERROR_BY_STATUS: Final[dict[int, type[ProviderFailure]]] = {
    400: ProviderRefused,
    408: ProviderTimeout,
    413: ProviderRefused,
    422: ProviderRefused,
    429: ProviderRateLimited,
    503: ProviderOverloaded,
    504: ProviderTimeout,
    529: ProviderOverloaded,
}
_TEXTS: Final[dict[type[ProviderFailure], str]] = {
    ProviderRefused: "{name} refused the request",
    ProviderRateLimited: "{name} is rate limiting requests",
    ProviderOverloaded: "{name} is overloaded",
    ProviderTimeout: "{name} did not answer in time",
    ProviderUnavailable: "{name} failed",
}
_REDIRECTS: Final = range(300, 400)
_OPERATORS: Final[dict[int, str]] = {
    **dict.fromkeys(
        _REDIRECTS,
        "{name} redirects to another address ({status}), which is not followed: check "
        "{settings}.base_url",
    ),
    401: "{name} refused this gateway's key (401): check {settings}.api_key",
    402: "{name} wants to be paid (402): check the account there of {settings}",
    403: "{name} does not allow this gateway's key this request (403): check {settings}.api_key",
    404: "{name} does not know what it was asked for (404): check {settings}.base_url, and the "
    "model's name in its endpoint",
}
"""What only the operator can mend, and where."""
_OWNERS: Final[dict[int, str]] = {
    401: "{name} refused the own key {own_key} (401)",
    402: "{name} wants to be paid for the own key {own_key} (402)",
    403: "{name} does not allow the own key {own_key} this request (403)",
    404: "{name} does not know what it was asked for with the own key {own_key} (404)",
    429: "{name} is rate limiting the own key {own_key}",
}
"""What only the owner of a key can mend."""
_OF_KEYS: Final = frozenset({401, 402, 403, 429})
_KEY_IN_WORDS: Final = tuple(
    (status, re.compile(rf"(?:your |you have )?(?:{words})", re.IGNORECASE))
    for status, words in (
        (401, r"(incorrect|invalid) api key|api key (not valid|not found|expired)"),
        (402, r"credit balance is too low|insufficient (balance|credits?)"),
    )
)
"""A refused key, in the words of a refused request: xAI, Google and others give it the status of
one, and Anthropic a balance that is used up. Only as the first words: what follows may be the
caller's own, who must not cool down a key that is everybody's.

Source: https://docs.x.ai/docs/key-information/debugging (400: "Incorrect API key provided"),
https://ai.google.dev/gemini-api/docs/troubleshooting ("API key not valid. Please pass a valid API
key."), https://docs.anthropic.com/en/api/errors ("Your credit balance is too low").
"""
_ID: Final = (
    r"(?<![\w-])(rs|msg|resp|fc|ctc|ws|ig|ci|mcp|cmp|tsc|conv|file|cntr|vs|prompt|pmpt|skill)[_-]\w"
)
_MISSING: Final = r"(not found|no such|(does|do) not exist|no longer|cannot be found|not persisted)"
_CALLERS: Final = re.compile(
    rf"{_ID}.{{0,200}}{_MISSING}|{_MISSING}.{{0,200}}{_ID}", re.IGNORECASE | re.DOTALL
)
"""An id of what the request refers to, and the provider does not have: the caller's to change.

Source: OpenAI says "Item with id 'rs_1' not found.", "Previous response with id 'r_1' not found."
and "No such File object: file-1", Anthropic "File not found: file_1".
"""
_LONGEST_MESSAGE = 500
_OWN_FAILURES: Final = range(500, 600)


def failure(  # noqa: PLR0913 - what a provider may say of it
    name: str,
    status: int,
    *,
    code: str | int | None = None,
    message: str | None = None,
    retry_after: int | None = None,
    slug: str | None = None,
    own_key: str | None = None,
) -> ProviderFailure:
    """Return our error for a provider's HTTP status, or the number that it gave in mid-stream.

    Only a refusal of the request shows the provider's `message`: there it tells the caller what to
    change, elsewhere it may tell strangers about the operator's account. `retry_after` is its hint
    in whole seconds, `slug` its name in the settings, where that is not its `name`, `own_key` the
    masked own key that it was shown.
    """
    meant = _meant(status, code, message)
    error = _failure(name, meant, code, message, slug or name, own_key)
    error.provider_status = status
    error.concerns_key = meant in _OF_KEYS and not isinstance(error, ProviderModerated)
    if not isinstance(error, (ProviderRefused, ProviderModerated)):
        error.retry_after = retry_after
    return error


def _meant(status: int, code: str | int | None, message: str | None) -> int:
    """Return the status that says what is wrong: a refused key is no refused request."""
    if status != STATUS["invalid"]:
        return status
    if (by_code := status_of_code(code)) in _LATER:
        return by_code
    if message is None:
        return status
    return next((meant for meant, words in _KEY_IN_WORDS if words.match(message)), status)


_LATER: Final = (429, 503, 529)
"""What some servers of AWS give the status of a refused request, too."""


def _failure(  # noqa: PLR0913, PLR0917 - as above
    name: str,
    status: int,
    code: str | int | None,
    message: str | None,
    slug: str,
    own_key: str | None,
) -> ProviderFailure:
    if isinstance(code, str) and code.lower() in MODERATION_CODES:
        text = f"{name} stopped the request: its moderation flagged it."
        return ProviderModerated(text, provider_name=name, provider_code=code, reasons=[code])
    shown = status if code is None else code
    if message and (
        (status == STATUS["not_found"] and _CALLERS.search(message))
        or (status in _OWN_FAILURES and _tells_full_context(code, message))
    ):
        status = STATUS["invalid"]
    kind = _ERROR_BY_STATUS.get(status, ProviderUnavailable)
    texts = _OPERATORS if own_key is None or status not in _OWNERS else _OWNERS
    text = texts.get(status, _TEXTS[kind]).format(
        name=name, status=status, settings=f"providers[{slug}]", own_key=own_key
    )
    if kind is not ProviderRefused:
        return kind(f"{text}.", provider_name=name, provider_code=shown)
    if message:
        text = f"{text}: {message[:_LONGEST_MESSAGE]}"
    return ProviderRefused(
        text if text.endswith(".") else f"{text}.",
        provider_name=name,
        provider_code=shown,
        error_type=_error_type(status, code, message),
    )


_TYPE_BY_STATUS: Final[dict[int, str]] = {413: "payload_too_large", 422: "unprocessable"}
FULL_CONTEXT: Final[dict[str, str]] = {
    "OpenAI, DeepSeek, vLLM, llama.cpp, Ollama, Mistral": r"context (length|window|limit|size)",
    "Anthropic, Fireworks": r"prompt (is )?too long",
    "Bedrock": r"input is too long|input length and .{0,20}exceed",
    "Cohere, Google": r"too many tokens|input token count.{0,40}exceeds",
    "xAI, vLLM": r"maximum (prompt|model|input) length",
    "SGLang": r"longer than the model'?s? (maximum|context)",
    "Together, TGI": r"inputs?`? (tokens|must have less than).{0,60}(must be|tokens)",
    "Moonshot, Zhipu": r"exceeded model token limit|prompt exceeds max length",
    "DashScope": r"range of input length should be",
    "Groq, OpenAI": r"reduce the length of (the|your) (messages|prompt|input)",
}
"""A full context, in the words of known servers."""
_TYPE_BY_WORDS: Final = [
    (re.compile(words, re.IGNORECASE), error_type)
    for words, error_type in (
        ("|".join(FULL_CONTEXT.values()), "context_length_exceeded"),
        (r"max_(completion_|output_)?tokens.{0,80}(large|exceed|maximum)", "max_tokens_exceeded"),
        (r"string too long", "string_too_long"),
        (r"(download|fetch).{0,40}image|image.{0,40}(download|fetch)", "image_download_failed"),
        (r"image.{0,60}(exceeds|too large)", "image_too_large"),
        (r"could not process image|invalid image", "invalid_image"),
    )
]


_TOO_MUCH: Final = re.compile(
    r"exceed|too (long|large|many|big)|longer|greater|larger|reduce|shorten|maximum|requested",
    re.IGNORECASE,
)


def _tells_full_context(code: str | int | None, message: str) -> bool:
    """Tell whether a server's own failure is a full context: those of some models are."""
    if isinstance(code, str) and TYPE_BY_CODE.get(code.lower()) == CONTEXT_LENGTH_EXCEEDED:
        return True
    return bool(_TYPE_BY_WORDS[0][0].search(message) and _TOO_MUCH.search(message))


def _error_type(status: int, code: str | int | None, message: str | None) -> str:
    if isinstance(code, str) and (known := TYPE_BY_CODE.get(code.lower())):
        return known
    found = (meant for words, meant in _TYPE_BY_WORDS if message and words.search(message))
    meant, by_status = next(found, None), _TYPE_BY_STATUS.get(status)
    if by_status is not None and meant != "context_length_exceeded":
        return by_status
    return meant or "invalid_request"


def unreadable(name: str) -> ProviderFailure:
    """Return our error for a reply that is not what its format promises."""
    return ProviderUnavailable(
        f"{name} sent an invalid response.", provider_name=name, ambiguous=True
    )


# A prompt that is longer than the model's context. Clients that shorten the conversation and try
# again know this error by its words, whatever the format:
#
#     prompt is too long: N tokens > M maximum       Claude Code, langchain-anthropic
#     exceeds the context window                     langchain-openai
#     this model's maximum context length is         LiteLLM, CrewAI, Cline

_NUMBERS: Final = (
    re.compile(r"(?P<tokens>\d{1,12}) tokens? ?> ?(?P<most>\d{1,12})"),
    re.compile(
        r"maximum context length (?:is|of) (?P<most>\d{1,12}) tokens.{0,60}?"
        r"(?:resulted in|requested|request has|contains)(?: about)? (?P<tokens>\d{1,12})"
    ),
    re.compile(r"token count \((?P<tokens>\d{1,12})\).{0,60}?allowed \((?P<most>\d{1,12})\)"),
    re.compile(
        r"maximum prompt length is (?P<most>\d{1,12}).{0,40}?contains (?P<tokens>\d{1,12}) tokens"
    ),
    re.compile(
        r"\((?:length )?(?P<tokens>\d{1,12})(?: tokens)?\).{0,60}?"
        r"(?:model length of |context length \(|context size \()(?P<most>\d{1,12})"
    ),
    re.compile(
        r"contains (?P<tokens>\d{1,12}) tokens.{0,60}?with (?P<most>\d{1,12}) maximum context"
    ),
)
"""How Anthropic, OpenAI and vLLM, Google, xAI, vLLM and SGLang and llama.cpp, and Mistral say how
many there were, and are at most."""


def too_long(said: str, estimated_tokens: int, context_length: int) -> str:
    """Return the message of a refusal whose prompt was too long.

    Numbers of tokens that the provider named in what it said hold; else the estimate of the prompt
    and the model's context length.
    """
    found = next((match for each in _NUMBERS if (match := each.search(said))), None)
    tokens, most = estimated_tokens, context_length
    if found is not None:
        tokens, most = int(found["tokens"]), int(found["most"])
    return (
        f"prompt is too long: {max(tokens, most + 1)} tokens > {most} maximum. "
        f"It exceeds the context window: this model's maximum context length is {most} tokens. "
        f"{said}"
    )
