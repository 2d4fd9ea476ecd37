"""Requests to other hosts, through the proxy that the environment names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final

import httpx2
from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.tools.consent import need_consent
from tollhouse.sandbox.agent.tools.excerpts import Excerpt
from tollhouse.sandbox.agent.tools.work import Work

SCOPE: Final = "http_request"
LONGEST_SECONDS: Final = 300
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of an answer that is read; the model sees an excerpt."""
_SHOWN_HEADERS: Final = ("content-type", "content-length", "location", "retry-after", "etag")


async def http_request(
    ctx: RunContext[Work],
    url: Annotated[str, Field(max_length=8192)],
    method: Annotated[str, Field(pattern=r"^[A-Za-z]{1,16}$")] = "GET",
    headers: dict[str, str] | None = None,
    body: str | None = None,
    timeout_seconds: Annotated[int, Field(ge=1, le=LONGEST_SECONDS)] = 60,
) -> str:
    """Send an HTTP request, and return the answer's status, some of its headers, and its text.

    Redirects are not followed. Of a long answer you get the beginning and the end; use the shell
    to store one.

    Args:
        ctx: Of the call.
        url: With http:// or https://.
        method: GET, POST, and so on.
        headers: Of the request.
        body: Of the request, as text.
        timeout_seconds: After so many seconds it is given up.
    """
    method, headers = method.upper(), headers or {}
    need_consent(ctx, SCOPE, _operation(method, url, headers, body))
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _ask(method, url, headers, body)
    except TimeoutError:
        raise ToolFailed(f"There was no answer within {timeout_seconds} seconds.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise ToolFailed(f"The request failed: {error or type(error).__name__}") from None


async def _ask(method: str, url: str, headers: Mapping[str, str], body: str | None) -> str:
    content = None if body is None else body.encode(errors="replace")
    excerpt = Excerpt()
    async with (
        httpx2.AsyncClient(follow_redirects=False, timeout=None) as client,
        client.stream(method, url, headers=headers, content=content) as response,
    ):
        async for piece in response.aiter_bytes():
            excerpt.add(piece)
            if excerpt.size > MOST_BYTES:
                break
    shown = [
        f"{name}: {response.headers[name]}" for name in _SHOWN_HEADERS if name in response.headers
    ]
    lines = [f"HTTP {response.status_code} {response.reason_phrase}".rstrip(), *shown, ""]
    return "\n".join([*lines, excerpt.text()])


def _operation(method: str, url: str, headers: Mapping[str, str], body: str | None) -> str:
    """Return what a person decides about: all that is sent."""
    lines = [f"{method} {url}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\n".join(lines if body is None else [*lines, "", body])
