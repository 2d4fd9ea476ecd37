"""The endpoints that a batch can be for, however they are written. Pure."""

from __future__ import annotations

from typing import Final

from tollhouse.kernel.start import StartError

# As in `batches.types`, whose import loads all the layers below it.
ENDPOINTS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings")
DEFAULT: Final = ENDPOINTS[0]
_VERSION: Final = "/v1/"


def known_endpoint(text: str) -> str | None:
    """Return an endpoint as the API writes it, from `messages` or `/v1/messages`; None for none."""
    path = _VERSION + text.strip().strip("/").removeprefix(_VERSION.strip("/") + "/")
    return path if path in ENDPOINTS else None


def endpoint_option(text: str) -> str:
    """Return what `--endpoint` means.

    Raises:
        StartError: No batch can be for it.
    """
    found = known_endpoint(text)
    if found is None:
        message = f"--endpoint: {text!r} is none of {names()}"
        raise StartError(message)
    return found


def names() -> str:
    """Return the endpoints as people write them."""
    return ", ".join(each.removeprefix(_VERSION) for each in ENDPOINTS)
