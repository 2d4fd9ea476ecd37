"""From a request as it came to a call that the pipeline takes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tollhouse.inference.attribution import attribute
from tollhouse.inference.call import Call
from tollhouse.inference.formats.raw_json import encoder, raw
from tollhouse.inference.preferences import read_preferences

if TYPE_CHECKING:
    from tollhouse.accounting.types import Attribution
    from tollhouse.identity.types import Subject
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.formats.registry import ApiFormat, ParsedRequest, RawRequest
    from tollhouse.kernel.clock import Now


def read_call(
    spoken: ApiFormat,
    arrived: RawRequest,
    subject: Subject,
    said: Attribution,
    now: Now,
) -> Call:
    """Return what a request asks for.

    Args:
        spoken: Its format.
        arrived: The request.
        subject: Who asks, and pays.
        said: What its headers say of the program that sent it.
        now: When it came.

    Raises:
        Invalid: It is not of its format, or says of routing what makes no sense.
    """
    request, relays = spoken.parse(arrived)
    return Call(
        request,
        relays,
        read_preferences(request.fields),
        subject,
        attribute(said, request.fields, anthropic=spoken.anthropic),
        now.at,
        now.monotonic,
        partial(_with_limit, spoken, arrived, request),
    )


def _with_limit(
    spoken: ApiFormat, arrived: RawRequest, request: ClientRequest, output_tokens: int
) -> ParsedRequest:
    return spoken.parse(limited(arrived, request, output_tokens))


def limited(arrived: RawRequest, request: ClientRequest, output_tokens: int) -> RawRequest:
    """Return a request as it would have come with a limit of its output in place of its own."""
    names = request.output_limits
    fields = {name: value for name, value in request.fields.items() if name not in names}
    # The last name is the one that every server knows.
    fields[names[-1]] = raw(output_tokens)
    return replace(arrived, body=encoder.encode(fields))
