"""The error tree: everything that the program refuses or fails at, in one picture.

    TollhouseError
     ├─ NotFound                 the thing does not exist, or not for this caller
     │   └─ NotOffered           a whole part of the API does not exist for this caller
     ├─ Gone                     it existed and is past its retention
     ├─ Conflict                 the state forbids it now
     ├─ Invalid                  the request itself is wrong
     │   ├─ MethodNotAllowed
     │   ├─ PayloadTooLarge
     │   ├─ UnsupportedMediaType
     │   └─ Unprocessable        well-formed, but breaks a rule of the operation
     ├─ Unauthenticated          no key, or a wrong one
     ├─ Forbidden                a key that may not do this
     ├─ PaymentRequired          no money for it
     ├─ RateLimited              too often
     ├─ TimedOut                 our own deadline passed
     ├─ ProviderFailure          a provider failed us; carries its name and code
     │   ├─ ProviderRefused      the provider says that the request is wrong
     │   ├─ ProviderModerated    a filter at the provider flagged it
     │   ├─ ProviderRateLimited
     │   ├─ ProviderUnavailable  refused, reset, cut, garbage, 5xx
     │   ├─ ProviderOverloaded
     │   └─ ProviderTimeout
     ├─ Unavailable              we cannot serve now (starting, stopping)
     │   └─ Unroutable           no endpoint is as the request wants it
     └─ Bug                      our own fault; its text is never shown

An error carries its facts as attributes. `kind` decides the HTTP status (in `api/errors.py`
alone), `code` is a stable name from the wire's list of `error_type` values, and `metadata` holds
what the caller's envelope shows beside the message. Messages are written for the caller and
never contain a key, a secret or a request body.

Source: the 27 `error_type` values of the public gateway's error reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

Kind = Literal[
    "not_found",
    "gone",
    "conflict",
    "invalid",
    "method_not_allowed",
    "payload_too_large",
    "unsupported_media_type",
    "unprocessable",
    "unauthenticated",
    "forbidden",
    "payment_required",
    "rate_limited",
    "timed_out",
    "upstream",
    "upstream_overloaded",
    "upstream_timeout",
    "unavailable",
    "bug",
]


CONTEXT_LENGTH_EXCEEDED: Final = "context_length_exceeded"
"""The code of a request that is longer than its model's context."""
E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """Return an error that refers to none of the frames it passed, nor do those that led to it.

    For whoever keeps a caught error: a frame refers to all that it holds, such as a body, and often
    to the one that keeps the error. Both would stay until the garbage collector finds the cycle.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()  # a cause is most often the context, too
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        waiting += (each.__cause__, each.__context__)
    return error


def _restored(
    kind: type[TollhouseError], arguments: tuple[object, ...], facts: Mapping[str, object]
) -> TollhouseError:
    """Return an error as it was before it was pickled, whatever its constructor takes."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(facts)
    return error


class TollhouseError(Exception):
    """The root: a refusal or failure that a caller may see."""

    kind: Kind = "bug"
    code: str = "server"

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, object] | None = None,
        retry_after: int | None = None,
    ) -> None:
        """Say what happened.

        Args:
            message: One sentence for the caller that says what to do, where that is known.
            metadata: Facts for the envelope's `metadata`.
            retry_after: Whole seconds, at least 1, after which another try makes sense.
        """
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, object] = dict(metadata or {})
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        """Let another process raise it here: it carries its facts, not its constructor's call."""
        return _restored, (type(self), self.args, self.__dict__)


class NotFound(TollhouseError):
    """The thing does not exist, or not for this caller."""

    kind = "not_found"
    code = "not_found"


class NotOffered(NotFound):
    """A whole part of the API does not exist for this caller, who is not told more."""


class Gone(TollhouseError):
    """It existed and is past its retention."""

    kind = "gone"
    code = "not_found"


class Conflict(TollhouseError):
    """The state forbids it now."""

    kind = "conflict"
    code = "precondition_failed"


class Invalid(TollhouseError):
    """The request itself is wrong."""

    kind = "invalid"
    code = "invalid_request"


class MethodNotAllowed(Invalid):
    """The path exists, but not with this method."""

    kind = "method_not_allowed"

    def __init__(self, message: str, *, allow: tuple[str, ...]) -> None:
        """Say which methods the path has."""
        super().__init__(message)
        self.allow = allow


class PayloadTooLarge(Invalid):
    """The body is over the limit of its route."""

    kind = "payload_too_large"
    code = "payload_too_large"


class UnsupportedMediaType(Invalid):
    """The body is not in the format that the route takes."""

    kind = "unsupported_media_type"


class Unprocessable(Invalid):
    """Well-formed, but breaks a rule of the operation."""

    kind = "unprocessable"
    code = "unprocessable"


class Unauthenticated(TollhouseError):
    """No key, or a wrong one."""

    kind = "unauthenticated"
    code = "authentication"


class Forbidden(TollhouseError):
    """A key that may not do this."""

    kind = "forbidden"
    code = "permission_denied"


class PaymentRequired(TollhouseError):
    """No money for it."""

    kind = "payment_required"
    code = "payment_required"


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The limit that a request ran into."""

    limit: int
    """Requests in one window."""
    remaining: int
    resets_at: datetime
    """When the next request may pass."""

    def headers(self) -> dict[str, str]:
        """Return what a 429 says of it; the reset is in milliseconds since the epoch."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(int(self.resets_at.timestamp() * 1000)),
        }


class RateLimited(TollhouseError):
    """Too often: we ourselves say so, and show the limit that was passed."""

    kind = "rate_limited"
    code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        window: RateWindow,
        metadata: Mapping[str, object] | None = None,
        retry_after: int | None = None,
    ) -> None:
        """Say which limit was passed."""
        super().__init__(message, metadata=metadata, retry_after=retry_after)
        self.window = window


class TimedOut(TollhouseError):
    """Our own deadline passed."""

    kind = "timed_out"
    code = "timeout"


class ProviderFailure(TollhouseError):
    """A provider failed us."""

    kind = "upstream"
    code = "provider_unavailable"

    def __init__(
        self,
        message: str,
        *,
        provider_name: str,
        provider_code: str | int | None = None,
        retry_after: int | None = None,
        ambiguous: bool = False,
    ) -> None:
        """Say which provider failed and how.

        Args:
            message: One sentence for the caller.
            provider_name: The provider as the catalogue spells it.
            provider_code: The provider's own code or status, where it gave one.
            retry_after: Whole seconds, from the provider's own hint.
            ambiguous: The request may have left and no answer came: the work may be done and
                billed, so it is asked for again only where that costs nothing.
        """
        super().__init__(message, retry_after=retry_after)
        self.ambiguous = ambiguous
        self.provider_name = provider_name
        self.provider_code = provider_code
        self.provider_status: int | None = None
        """Its HTTP status, where one came."""
        self.metadata["provider_name"] = provider_name
        if provider_code is not None:
            self.metadata["provider_code"] = provider_code
        self.metadata["error_type"] = self.code


class ProviderRefused(ProviderFailure):
    """The provider says that the request is wrong; another model may take it."""

    kind = "invalid"
    code = "invalid_request"

    def __init__(
        self,
        message: str,
        *,
        provider_name: str,
        provider_code: str | int | None = None,
        ambiguous: bool = False,
        error_type: str = "invalid_request",
    ) -> None:
        """Say which provider refused it, and which of the wire's error types that is."""
        self.code = error_type
        self.kind = _KIND_OF_REFUSAL.get(error_type, "invalid")
        super().__init__(
            message,
            provider_name=provider_name,
            provider_code=provider_code,
            ambiguous=ambiguous,
        )


_KIND_OF_REFUSAL: Final[Mapping[str, Kind]] = {
    "image_not_found": "not_found",
    "payload_too_large": "payload_too_large",
    "unprocessable": "unprocessable",
}


class ProviderModerated(ProviderFailure):
    """A filter at the provider flagged the request."""

    kind = "forbidden"
    code = "permission_denied"

    def __init__(
        self,
        message: str,
        *,
        provider_name: str,
        provider_code: str | int | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        """Say whose filter it was, and what it named."""
        super().__init__(message, provider_name=provider_name, provider_code=provider_code)
        self.metadata["reasons"] = list(reasons)


class ProviderRateLimited(ProviderFailure):
    """The provider says: too often."""

    kind = "rate_limited"
    code = "rate_limit_exceeded"


class ProviderUnavailable(ProviderFailure):
    """The provider refused the connection, cut it, sent garbage or a 5xx."""


class ProviderOverloaded(ProviderFailure):
    """The provider says that it has no capacity now."""

    kind = "upstream_overloaded"
    code = "provider_overloaded"


class ProviderTimeout(ProviderFailure):
    """The provider did not answer in time."""

    kind = "upstream_timeout"
    code = "timeout"


class Unavailable(TollhouseError):
    """We cannot serve this now."""

    kind = "unavailable"
    code = "provider_overloaded"


class Unroutable(Unavailable):
    """No provider is as the request wants one; trying again does not change that."""


class Bug(TollhouseError):
    """Our own fault; its text goes to the log, never to the caller."""
