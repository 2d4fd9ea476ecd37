"""Providers that stand in no configuration: those whose own key is in the environment.

    OPENAI_API_KEY      the provider openai, with every model of its price list
    ANTHROPIC_API_KEY   the provider anthropic, likewise

They count only where nothing is configured: a key that other programs need must not change what a
configured gateway offers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.settings.sections import ANTHROPIC_BASE_URL

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
_PROVIDERS: Final[Mapping[str, Mapping[str, object]]] = {
    "OPENAI_API_KEY": {
        "slug": "openai",
        "name": "OpenAI",
        "kind": "openai_compatible",
        "base_url": OPENAI_BASE_URL,
    },
    "ANTHROPIC_API_KEY": {
        "slug": "anthropic",
        "name": "Anthropic",
        "kind": "anthropic",
        "base_url": ANTHROPIC_BASE_URL,
    },
}


def providers_of_keys(env: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the providers whose key is in the environment, as a configuration would name them."""
    return [
        {**provider, "api_key": env[name].strip(), "list_models": True}
        for name, provider in _PROVIDERS.items()
        if env.get(name, "").strip()
    ]
