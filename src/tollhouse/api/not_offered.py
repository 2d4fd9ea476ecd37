"""Endpoints of OpenAI's and Anthropic's APIs that are not offered, and what to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.api.policy import below

if TYPE_CHECKING:
    from collections.abc import Mapping

_INLINE: Final = (
    "Send documents and pictures inline with the request that is about them; "
    "POST /v1/batches takes its requests in its body."
)
_HISTORY: Final = (
    "Nothing is stored between requests: send the whole conversation to POST /v1/responses or "
    "POST /v1/chat/completions."
)
_INSTEAD: Final[Mapping[str, str]] = {
    "/files": _INLINE,
    "/uploads": _INLINE,
    "/images": "Ask a model that draws with POST /v1/chat/completions and `modalities`.",
    "/videos": "Ask the provider itself.",
    "/audio": "POST /v1/chat/completions passes recordings (`input_audio`) and spoken answers "
    "(`modalities`) on to models that know them.",
    "/realtime": "Stream from POST /v1/chat/completions or POST /v1/responses.",
    "/moderations": "A policy has patterns and guardrails that judge requests: "
    "PUT /v1/workspaces/{id}/policy.",
    "/rerank": "Compare the vectors of POST /v1/embeddings.",
    "/assistants": f"{_HISTORY} Agents that last are interns: POST /v1/interns.",
    "/threads": f"{_HISTORY} Agents that last are interns: POST /v1/interns.",
    "/conversations": _HISTORY,
    "/chat/completions": _HISTORY,
    "/responses": _HISTORY,
    "/vector_stores": "Compare the vectors of POST /v1/embeddings.",
    "/fine_tuning": "Fine-tune at the provider, and name the model it gives you in `models` of the "
    "settings.",
    "/evals": "Send the requests with POST /v1/batches, and judge the replies yourself.",
    "/containers": "Interns have a workspace to run programs in: POST /v1/interns.",
    "/messages/batches": "Use POST /v1/batches with the endpoint /v1/messages.",
    "/complete": "Use POST /v1/messages.",
}
"""Path -> what to use instead of what lies there and below."""


def not_offered(path: str) -> str | None:
    """Return what to tell a client that asks for an endpoint of another API; None for no such one.

    Args:
        path: Below the version segment.
    """
    found = next((root for root in _INSTEAD if below(path, (root,))), None)
    return None if found is None else f"/v1{found} is not offered here. {_INSTEAD[found]}"
