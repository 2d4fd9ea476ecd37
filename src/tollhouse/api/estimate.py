"""`POST /estimate`: what would become of a request, and what it may cost. Ours.

    {"endpoint": "/v1/chat/completions", "body": {...}}

The body inside is taken as it stands, byte for byte: it is read by the format's own reader, and its
tokens are counted as those of the request itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from tollhouse.api.asgi import JSON, respond
from tollhouse.api.limits import read_body
from tollhouse.api.policy import api_path
from tollhouse.identity.access import billed_to
from tollhouse.inference import policy_filter
from tollhouse.inference.attribution import attribution
from tollhouse.inference.estimate_wire import estimate_reply
from tollhouse.inference.formats.registry import FORMAT_HEADERS, FORMATS, RawRequest
from tollhouse.inference.request_parsing import read_call
from tollhouse.inference.steps import LARGE, without_texts
from tollhouse.kernel.clock import Now
from tollhouse.kernel.envelope import envelope
from tollhouse.kernel.errors import Forbidden, Invalid, without_frames
from tollhouse.kernel.validation_errors import parse_validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Attribution
    from tollhouse.api.asgi import Receive, Scope, Send
    from tollhouse.api.hot_routes import LargeBodies
    from tollhouse.identity.types import Subject
    from tollhouse.inference.call import Call
    from tollhouse.inference.dry_run import DryRun
    from tollhouse.inference.formats.registry import ApiFormat
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.errors import TollhouseError
    from tollhouse.settings.sections import ServerSettings


class _Asked(Struct, forbid_unknown_fields=True):
    endpoint: str
    body: Raw


_asked: Final = msgspec.json.Decoder(_Asked)
_encode: Final = msgspec.json.Encoder().encode


class Estimate:
    """`POST` of a request in any format, of which nothing is sent."""

    method = "POST"

    def __init__(
        self,
        dry_run: DryRun,
        clock: Clock,
        settings: ServerSettings,
        source_prefix: str,
        large: LargeBodies,
    ) -> None:
        """Take what the route needs.

        Args:
            dry_run: Follows the request.
            clock: The time.
            settings: The largest body of an inference request.
            source_prefix: What every `limit_source` begins with.
            large: Keeps large bodies from holding up the others.
        """
        self._large = large
        self._dry_run = dry_run
        self._clock = clock
        self._body_limit = settings.body_limit_bytes
        self._prefix = source_prefix

    def refuse(self, error: TollhouseError, request_id: str | None) -> Mapping[str, object]:
        """Return the common envelope, whatever format the request inside has."""
        del request_id
        return envelope(error)

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
            body = await read_body(receive, headers, self._body_limit, hold)
            around = {name: headers[name] for name in FORMAT_HEADERS if name in headers}
            arrived = RawRequest(body, around, scope["query_string"])
            call, flagged = await self._large.steps.run(
                subject.account_id, len(body), _call, arrived, subject, attribution(headers), now
            )
            found = await self._dry_run.estimate(call, flagged)
        await respond(send, 200, [JSON], _encode(estimate_reply(found, self._prefix)))


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


def _call(
    arrived: RawRequest, subject: Subject, said: Attribution, now: Now
) -> tuple[Call, Forbidden | None]:
    """Return the request inside, and what the caller's policies say against its words."""
    asked = _read(arrived.body)
    spoken, body = format_of(asked.endpoint), bytes(asked.body)
    inner = replace(arrived, body=body)
    call = read_call(spoken, inner, subject, said, now)
    flagged: Forbidden | None = None
    try:
        policy_filter.require_unflagged(subject.policies, body)
    except Forbidden as error:
        flagged = without_frames(error)
    return (
        without_texts(call, spoken, replace(inner, body=b"")) if len(arrived.body) > LARGE else call
    ), flagged


def _read(body: bytes) -> _Asked:
    try:
        return _asked.decode(body)
    except msgspec.ValidationError as error:
        path, problem = parse_validation_error(error)
        where = path.removeprefix(".")
        raise Invalid(f"{where}: {problem}." if where else f"{problem}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"The body is not readable JSON: {error}.") from None
