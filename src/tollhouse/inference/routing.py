"""Which endpoints a request tries, in which order. Pure.

Two questions, and the answer for the caller when every endpoint failed:

    order(model) -> endpoints, first to last
    moves_on(error, idempotent) -> whether the next endpoint may be tried
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.kernel.errors import (
    ProviderFailure,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderRefused,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.types import Endpoint, Model

_HINTED: Final = (ProviderRateLimited, ProviderOverloaded)
"""The errors (429 and 503) whose answer may say when to try again."""


def order(model: Model) -> Sequence[Endpoint]:
    """Return a model's endpoints in the order in which they are tried: the catalogue's."""
    return model.endpoints


def moves_on(error: ProviderFailure, *, idempotent: bool) -> bool:
    """Tell whether another endpoint may be asked after this one failed.

    Never where the provider says that the request itself is wrong, and where the work may have been
    done already only if that costs nothing.

    Args:
        error: How it failed, before the first byte of its reply.
        idempotent: What the endpoint says of its provider.
    """
    return (idempotent or not error.ambiguous) and not isinstance(error, ProviderRefused)


def last_word(errors: Sequence[ProviderFailure]) -> ProviderFailure:
    """Return the error that the caller gets after every endpoint failed: the last one.

    Its `retry_after` is the smallest hint if every provider gave one, and none otherwise: a
    partial hint would promise what a silent provider never said. It is ambiguous if any was: an
    earlier endpoint may have done the work.
    """
    error = errors[-1]
    error.ambiguous = any(each.ambiguous for each in errors)
    hints = [each.retry_after for each in errors if each.retry_after is not None]
    hinted = isinstance(error, _HINTED) and len(hints) == len(errors)
    error.retry_after = min(hints) if hinted else None
    return error
