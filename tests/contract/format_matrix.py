"""Every format of the client libraries times every dialect of a provider times every feature.

`CELLS` is the whole product without what `RULES` leaves out, each for its reason.
"""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

from tests.support.client_process import CLIENTS, run_client
from tests.support.server_process import ServerProcess
from tests.support.upstream_process import UpstreamProcess

Cell = tuple[str, str, str]
"""Format, dialect, feature."""

LIBRARIES = {
    "openai": ("openai chat", "openai responses", "openai completions", "openai embeddings"),
    "anthropic": ("anthropic messages",),
    "openrouter": ("openrouter chat", "openrouter responses", "openrouter embeddings"),
}
DIALECTS = ("chat", "responses", "messages", "embeddings")
CONVERSATIONS = (
    *("text", "turns", "tool", "two tools", "forced tool", "image", "json", "reasoning"),
    *("hidden reasoning", "thought and call", "refusal", "stop", "length", "prefill", "cached"),
)
REFUSED_BY_GATEWAY = ("error no-key", "error nothing", "error invalid")
ERRORS = (
    *REFUSED_BY_GATEWAY,
    *("error status:400", "error status:401", "error status:429:retry-7", "error status:500"),
    *("error status:503", "error status:529", "error error-in-stream"),
)
ANTHROPIC = ("beta", "bearer", "count", "models")
FEATURES = (*CONVERSATIONS, *ERRORS, *ANTHROPIC, "vectors")

TEXT_ONLY = {"text", "refusal", "stop", "length", *ERRORS}
RULES: dict[str, Callable[[str, str, str], bool]] = {
    "vectors come from embeddings of an embeddings provider alone": lambda f, d, x: (
        ("embeddings" in f) != (d == "embeddings") or ("embeddings" not in f and x == "vectors")
    ),
    "embeddings are nothing but vectors": lambda f, _, x: (
        "embeddings" in f and x not in {"vectors", *REFUSED_BY_GATEWAY}
    ),
    "the openrouter library itself refuses a wrong input of embeddings": lambda f, _, x: (
        f == "openrouter embeddings" and x == "error invalid"
    ),
    "a text completion has one prompt, no parts, no tools, no thoughts": lambda f, _, x: (
        "completions" in f and x not in TEXT_ONLY
    ),
    "only the anthropic library has these calls": lambda f, _, x: (
        x in ANTHROPIC and "anthropic" not in f
    ),
    "openai's responses have no stop sequences": lambda f, _, x: (
        f == "openai responses" and x == "stop"
    ),
    "responses have no prefill": lambda f, _, x: "responses" in f and x == "prefill",
    "only Anthropic hides whole thoughts": lambda _, d, x: (
        d != "messages" and x == "hidden reasoning"
    ),
    "the chat stand-in does not think before a call": lambda _, d, x: (
        d == "chat" and x == "thought and call"
    ),
    "the chat stand-in calls its first tool, whatever is forced": lambda _, d, x: (
        d == "chat" and x == "forced tool"
    ),
}


def exists(cell: Cell) -> bool:
    return not any(leaves_out(*cell) for leaves_out in RULES.values())


ALL_CELLS = [
    cell for formats in LIBRARIES.values() for cell in product(formats, DIALECTS, FEATURES)
]
CELLS = [cell for cell in ALL_CELLS if exists(cell)]

BEHAVIOURS = {
    *("echo", "tools", "two-tools", "json", "refusal", "cached"),
    *("reasoning", "reasoning-details"),
    *("thinking", "redacted", "error-in-stream", "embedding-2026"),
    *(error.removeprefix("error ") for error in ERRORS if "status" in error),
}
PRICE_IN, PRICE_OUT = 0.000_001, 0.000_002


def config(origin: str) -> str:
    """Return the configuration of a gateway before one provider of each dialect, and simulated."""
    url = f"{origin}/v1"
    providers = [
        {"slug": "chat", "kind": "openai_compatible", "base_url": url, "dialects": ["chat"]},
        {"slug": "responses", "kind": "openai_compatible", "base_url": url}
        | {"dialects": ["responses"]},
        {"slug": "messages", "kind": "anthropic", "base_url": url, "api_key": "sk-ant-1"},
        {"slug": "embeddings", "kind": "openai_compatible", "base_url": url}
        | {"dialects": ["embeddings"]},
        {"slug": "simulated", "kind": "simulated"},
    ]
    pricing = {"prompt": "0.000001", "completion": "0.000002"}
    models: list[dict[str, Any]] = [
        {
            "id": f"{dialect}/{behaviour}",
            "context_length": 200_000,
            "endpoints": [
                {
                    "provider": dialect,
                    "model": behaviour.replace("retry-", "retry="),
                    "pricing": pricing,
                }
            ],
        }
        for dialect, behaviour in product(DIALECTS, sorted(BEHAVIOURS))
    ]
    return json.dumps({"providers": providers, "models": models})


class FormatMatrix:
    """A running gateway before a provider of each dialect, and what the libraries saw of it."""

    def __init__(self, server: ServerProcess, upstream: UpstreamProcess) -> None:
        self.server = server
        self.upstream = upstream
        self._seen: dict[str, dict[str, Any]] = {}

    def seen(self, cell: Cell) -> Any:
        """Return a library's result for a cell; all cells of a library run in one process."""
        library = cell[0].split()[0]
        if library not in self._seen:
            self._seen[library] = self._run(library)
        return self._seen[library][" ".join(cell)]

    def _run(self, library: str) -> dict[str, Any]:
        cells = [cell for cell in CELLS if cell[0] in LIBRARIES[library]]
        env = {
            "PYTHONPATH": str(CLIENTS),
            "CELLS": json.dumps(cells),
            "ORIGIN": self.server.origin,
            "BASE_URL": self.server.base_url,
            "API_KEY": self.server.api_key,
            "UPSTREAM": self.upstream.origin,
        }
        return run_client(library, "check_formats.py", env=env, timeout=90)
