"""The one place where an OpenAI-compatible server's error replies become ours.

Source: https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.chat_completions.errors import parse_error_event
from tollhouse.inference.providers.failures import failure

if TYPE_CHECKING:
    from tollhouse.kernel.errors import ProviderFailure

_body = msgspec.json.Decoder(dict[str, msgspec.Raw])


def explain(status: int, body: bytes, name: str, retry_after: int | None) -> ProviderFailure:
    """Return our error for an error status.

    Args:
        status: The HTTP status.
        body: Its body, whatever it is.
        name: The provider's name.
        retry_after: Its hint, in whole seconds.
    """
    try:
        fields = _body.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = {}
    said = parse_error_event(fields.get("error", b"{}"))
    return failure(name, status, code=said.code, message=said.message, retry_after=retry_after)
