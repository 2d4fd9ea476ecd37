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
    api_format: ApiFormat,
    raw_request: RawRequest,
    subject: Subject,
    said: Attribution,
    now: Now,
) -> Call:
    """Return what a request asks for.

    Args:
        api_format: Its format.
        raw_request: The request.
        subject: Who asks, and pays.
        said: What its headers say of the program that sent it.
        now: When it came.

    Raises:
        Invalid: It is not of its format, or says of routing what makes no sense.
    """
    request, adapters = api_format.parse(raw_request)
    return Call(
        request,
        adapters,
        read_preferences(request.fields),
        subject,
        attribute(said, request.fields, anthropic=api_format.anthropic),
        now.at,
        now.monotonic,
        partial(_with_limit, api_format, raw_request, request),
    )


def _with_limit(
    api_format: ApiFormat, raw_request: RawRequest, request: ClientRequest, output_tokens: int
) -> ParsedRequest:
    return api_format.parse(limited(raw_request, request, output_tokens))


def limited(raw_request: RawRequest, request: ClientRequest, output_tokens: int) -> RawRequest:
    """Return a request as it would have come with a limit of its output in place of its own."""
    names = request.output_limits
    fields = {name: value for name, value in request.fields.items() if name not in names}
    # The last name is the one that every server knows.
    fields[names[-1]] = raw(output_tokens)
    return replace(raw_request, body=encoder.encode(fields))
