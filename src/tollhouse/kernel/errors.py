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

An error carries its facts as attributes. `kind` decides the HTTP status (`STATUS`), `code` is a
stable name from the wire's list of `error_type` values, and `metadata` holds what the body shows
beside the message. Messages are written for the caller and never contain a key, a secret or a
request body.

`error_body` is how an error looks on the wire where an API format does not say otherwise:
`{"error": {"code", "message", "metadata"?}}`, with an integer as `code`, which clients parse.

A `StartError` is not in the tree: it is for the person in front of the terminal, before there is
an API that could be called.

Source: the public gateway's error reference, with its 27 `error_type` values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import msgspec


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

    def __init_subclass__(cls, *, kind: Kind | None = None, code: str | None = None) -> None:
        super().__init_subclass__()
        cls.kind, cls.code = kind or cls.kind, code or cls.code

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, object] | None = None,
        retry_after: int | None = None,
    ) -> None:
        """Say what happened in one sentence for the caller, and what to do, where that is known.

        `retry_after` is in whole seconds, at least 1, after which another try makes sense.
        """
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, object] = dict(metadata or {})
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        """Let another process raise it here: it carries its facts, not its constructor's call."""
        return _restored, (type(self), self.args, self.__dict__)


class NotFound(TollhouseError, kind="not_found", code="not_found"):
    """The thing does not exist, or not for this caller."""


class NotOffered(NotFound):
    """A whole part of the API does not exist for this caller, who is not told more."""


class Gone(TollhouseError, kind="gone", code="not_found"):
    """It existed and is past its retention."""


class Conflict(TollhouseError, kind="conflict", code="precondition_failed"):
    """The state forbids it now."""


class Invalid(TollhouseError, kind="invalid", code="invalid_request"):
    """The request itself is wrong."""


class MethodNotAllowed(Invalid, kind="method_not_allowed"):
    """The path exists, but not with this method."""

    def __init__(self, message: str, *, allow: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allow = allow


class PayloadTooLarge(Invalid, kind="payload_too_large", code="payload_too_large"):
    """The body is over the limit of its route."""


class UnsupportedMediaType(Invalid, kind="unsupported_media_type"):
    """The body is not in the format that the route takes."""


class Unprocessable(Invalid, kind="unprocessable", code="unprocessable"):
    """Well-formed, but breaks a rule of the operation."""


class Unauthenticated(TollhouseError, kind="unauthenticated", code="authentication"):
    """No key, or a wrong one."""


class Forbidden(TollhouseError, kind="forbidden", code="permission_denied"):
    """A key that may not do this."""


class PaymentRequired(TollhouseError, kind="payment_required", code="payment_required"):
    """No money for it."""


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


class RateLimited(TollhouseError, kind="rate_limited", code="rate_limit_exceeded"):
    """Too often: we ourselves say so, and show the limit that was passed."""

    def __init__(
        self,
        message: str,
        *,
        window: RateWindow,
        metadata: Mapping[str, object] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, metadata=metadata, retry_after=retry_after)
        self.window = window


class TimedOut(TollhouseError, kind="timed_out", code="timeout"):
    """Our own deadline passed."""


class ProviderFailure(TollhouseError, kind="upstream", code="provider_unavailable"):
    """A provider failed us."""

    def __init__(
        self,
        message: str,
        *,
        provider_name: str,
        provider_code: str | int | None = None,
        retry_after: int | None = None,
        ambiguous: bool = False,
    ) -> None:
        """Say which provider failed, and its own code or status, where it gave one.

        `ambiguous`: the request may have left and no answer came. The work may be done and billed,
        so it is asked for again only where that costs nothing.
        """
        super().__init__(message, retry_after=retry_after)
        self.ambiguous = ambiguous
        self.provider_name = provider_name
        self.provider_code = provider_code
        self.provider_status: int | None = None
        """Its HTTP status, where one came."""
        self.concerns_key = False
        """Whether it refused or limited the key that it was shown, and not the request."""
        self.metadata["provider_name"] = provider_name
        if provider_code is not None:
            self.metadata["provider_code"] = provider_code
        self.metadata["error_type"] = self.code


class ProviderRefused(ProviderFailure, kind="invalid", code="invalid_request"):
    """The provider says that the request is wrong; another model may take it."""

    def __init__(
        self,
        message: str,
        *,
        provider_name: str,
        provider_code: str | int | None = None,
        ambiguous: bool = False,
        error_type: str = "invalid_request",
    ) -> None:
        self.code = error_type
        self.kind = _KIND_OF_REFUSAL.get(error_type, "invalid")
        super().__init__(
            message, provider_name=provider_name, provider_code=provider_code, ambiguous=ambiguous
        )


_KIND_OF_REFUSAL: Final[Mapping[str, Kind]] = {
    "image_not_found": "not_found",
    "payload_too_large": "payload_too_large",
    "unprocessable": "unprocessable",
}


class ProviderModerated(ProviderFailure, kind="forbidden", code="permission_denied"):
    """A filter at the provider flagged the request."""

    def __init__(
        self,
        message: str,
        *,
        provider_name: str,
        provider_code: str | int | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        super().__init__(message, provider_name=provider_name, provider_code=provider_code)
        self.metadata["reasons"] = list(reasons)


class ProviderRateLimited(ProviderFailure, kind="rate_limited", code="rate_limit_exceeded"):
    """The provider says: too often."""


class ProviderUnavailable(ProviderFailure):
    """The provider refused the connection, cut it, sent garbage or a 5xx."""


class ProviderOverloaded(ProviderFailure, kind="upstream_overloaded", code="provider_overloaded"):
    """The provider says that it has no capacity now."""


class ProviderTimeout(ProviderFailure, kind="upstream_timeout", code="timeout"):
    """The provider did not answer in time."""


class Unavailable(TollhouseError, kind="unavailable", code="provider_overloaded"):
    """We cannot serve this now."""


class Unroutable(Unavailable):
    """No provider is as the request wants one; trying again does not change that."""


class Bug(TollhouseError):
    """Our own fault; its text goes to the log, never to the caller."""


class StartError(Exception):
    """The program cannot start.

    Its text says what is wrong and what to do, in one line (one line each where several things
    are wrong), and never holds a secret. The command prints it on standard error, without a
    trace, and ends with `exit_code`.
    """

    exit_code: ClassVar[int] = 2


STATUS: Final[Mapping[Kind, int]] = {
    "invalid": 400,
    "unauthenticated": 401,
    "payment_required": 402,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "timed_out": 408,
    "conflict": 409,
    "gone": 410,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "unprocessable": 422,
    "rate_limited": 429,
    "bug": 500,
    "upstream": 502,
    "unavailable": 503,
    "upstream_overloaded": 503,
    "upstream_timeout": 504,
}
INTERNAL_ERROR_MESSAGE = "Internal server error."


def status_of(error: TollhouseError) -> int:
    """Return the HTTP status of an error."""
    return STATUS[error.kind]


def error_object(error: TollhouseError) -> dict[str, object]:
    """Return the `error` object; a bug's text stays inside."""
    status = status_of(error)
    if isinstance(error, Bug) or status == STATUS["bug"]:
        return {
            "code": status,
            "message": INTERNAL_ERROR_MESSAGE,
            "metadata": {"error_type": error.code, **error.metadata},
        }
    shown: dict[str, object] = {"code": status, "message": error.message}
    if error.code == CONTEXT_LENGTH_EXCEEDED:
        # OpenAI's `code` is this word. Here it is a number, so the word stands where OpenAI's
        # clients look next.
        shown["type"] = error.code
    if error.metadata:
        shown["metadata"] = error.metadata
    return shown


def error_body(error: TollhouseError) -> dict[str, object]:
    """Return the JSON body of an error."""
    return {"error": error_object(error)}


def parse_validation_error(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return a path like `.messages[2].role`, empty for the whole value, and what is wrong there.

    Source: https://jcristharif.com/msgspec/usage.html#validation
    """
    problem, _, path = str(error).partition(" - at `$")
    return path.removesuffix("`"), problem
