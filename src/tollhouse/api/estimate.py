"""`POST /estimate`: what would become of a request, and what it may cost. Ours.

    {"endpoint": "/v1/chat/completions", "body": {...}}

The body inside is taken as it stands, byte for byte: it is read by the format's own reader, and its
tokens are counted as those of the request itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from tollhouse.api.asgi import JSON, Receive, Scope, Send, respond
from tollhouse.api.request_bodies import read_body
from tollhouse.api.request_rules import api_path
from tollhouse.identity.access import billed_to
from tollhouse.inference import policy_filter
from tollhouse.inference.admission import demand_of
from tollhouse.inference.estimate import DryRun, estimate_reply
from tollhouse.inference.formats.registry import FORMAT_HEADERS, FORMATS, ApiFormat
from tollhouse.inference.request import InferenceRequest, attribution, parse
from tollhouse.inference.steps import LARGE
from tollhouse.kernel.clock import Clock, Now
from tollhouse.kernel.errors import (
    Forbidden,
    Invalid,
    error_body,
    parse_validation_error,
    without_frames,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Attribution
    from tollhouse.api.hot_routes import LargeBodies
    from tollhouse.identity.types import Subject
    from tollhouse.kernel.errors import TollhouseError
    from tollhouse.settings.sections import ServerSettings


class _Asked(Struct, forbid_unknown_fields=True):
    endpoint: str
    body: Raw


_asked: Final = msgspec.json.Decoder(_Asked)
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Estimate:
    """`POST` of a request in any format, of which nothing is sent."""

    _dry_run: DryRun
    _clock: Clock
    _settings: ServerSettings
    _source_prefix: str
    _large: LargeBodies

    def refuse(self, error: TollhouseError, request_id: str | None) -> Mapping[str, object]:
        """Return the common error body, whatever format the request inside has."""
        del request_id
        return error_body(error)

    async def __call__(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Estimate.

        Raises:
            TollhouseError: The request cannot be read, or names no model that there is.
        """
        subject = billed_to(scope)
        now = Now.by(self._clock)
        with self._large.memory.hold(subject.account_id) as hold:
            body = await read_body(receive, headers, self._settings.body_limit_bytes, hold)
            around = {name: headers[name] for name in FORMAT_HEADERS if name in headers}
            request, flagged = await self._large.steps.run(
                subject.account_id,
                len(body),
                _parse_inner,
                body,
                around,
                scope["query_string"],
                subject,
                attribution(headers),
                now,
            )
            found = await self._dry_run.estimate(request, flagged)
        await respond(send, 200, [JSON], _encode(estimate_reply(found, self._source_prefix)))


def format_of(endpoint: str) -> ApiFormat:
    """Return the format of an inference endpoint, named with or without the version segment.

    Raises:
        Invalid: It is none.
    """
    path = "/" + endpoint.removeprefix("/")
    found = FORMATS.get(api_path(path) or path)
    if found is None:
        names = ", ".join(f"/v1{each}" for each in FORMATS)
        raise Invalid(f"endpoint: must be one of {names}.")
    return found


def _parse_inner(  # noqa: PLR0913, PLR0917 - what a request consists of
    body: bytes,
    headers: Mapping[bytes, bytes],
    query: bytes,
    subject: Subject,
    said: Attribution,
    now: Now,
) -> tuple[InferenceRequest, Forbidden | None]:
    """Return the request inside, and what the caller's policies say against its words."""
    asked = _read(body)
    request = InferenceRequest(
        format_of(asked.endpoint), bytes(asked.body), headers, query, subject, said, now
    )
    parse(request)
    flagged: Forbidden | None = None
    try:
        policy_filter.require_unflagged(subject.policies, request.body)
    except Forbidden as error:
        flagged = without_frames(error)
    demand_of(request)
    if len(body) > LARGE:
        request.body = b""
    return request, flagged


def _read(body: bytes) -> _Asked:
    try:
        return _asked.decode(body)
    except msgspec.ValidationError as error:
        path, problem = parse_validation_error(error)
        where = path.removeprefix(".")
        raise Invalid(f"{where}: {problem}." if where else f"{problem}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"The body is not readable JSON: {error}.") from None
