"""The one place where error replies in Anthropic's shape become ours.

Source: https://docs.anthropic.com/en/api/errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.messages.errors import parse_error
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
    said = parse_error(fields.get("error", b"{}"))
    return failure(name, status, code=said.code, message=said.message, retry_after=retry_after)
