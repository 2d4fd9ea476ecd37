"""How many tokens a request would take, without asking a model anything: free, and not booked.

A provider that counts is asked; for the others it is an estimate from the request's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.inference import policy_filter
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.messages import parse_count, parse_request, render_count
from tollhouse.inference.formats.wire import estimate_tokens
from tollhouse.inference.guardrails import question
from tollhouse.inference.own_routing import OwnKeyUse, attempts
from tollhouse.inference.ports import ProviderCall
from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import ProviderFailure, ProviderRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.identity.types import AccessPolicy, Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.formats.messages import MessagesRequest
    from tollhouse.inference.ports import Provider
    from tollhouse.inference.types import Endpoint
    from tollhouse.provider_keys.types import OwnKey

_NO_OWN_KEYS: Final = OwnKeyUse()


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Counts the tokens of messages requests."""

    _catalog: Catalog
    _providers: Mapping[str, Provider]

    async def count(  # noqa: PLR0913, PLR0917 - what a request is, and who sends it
        self,
        request: MessagesRequest,
        asks: Callable[[Endpoint], Awaitable[bytes]],
        query: str,
        headers: Sequence[tuple[str, str]],
        policies: Sequence[AccessPolicy] = (),
        own_keys: OwnKeyUse = _NO_OWN_KEYS,
    ) -> int:
        """Return the number of input tokens.

        Providers are asked with own keys as for a reply. Nothing of what the request says is needed
        here: `asks` returns the body with which an endpoint's provider is asked to count.

        Raises:
            NotFound: No such model.
            Forbidden: The policies allow none of its endpoints.
            ProviderRefused: The provider says that the request is wrong.
        """
        model = self._catalog.find(request.model)
        endpoints = policy_filter.allowed(policies, model.endpoints, lambda each: (model.id, each))
        found = attempts(model, endpoints, endpoints, own_keys, lambda _endpoint, _key: True)
        for endpoint, own_key in found:
            dialects = endpoint.dialects or self._providers[endpoint.provider].dialects
            if Dialect.COUNT_TOKENS not in dialects:
                continue
            try:
                body = await asks(endpoint)
                return await self._ask(endpoint, own_key, body, query, headers)
            except ProviderRefused:
                raise
            except (ProviderFailure, MalformedResponse):
                # A client that counts wants a number, now; the next endpoint, or an estimate.
                continue
        return estimate_tokens(request.size)

    async def _ask(
        self,
        endpoint: Endpoint,
        own_key: OwnKey | None,
        body: bytes,
        query: str,
        headers: Sequence[tuple[str, str]],
    ) -> int:
        call = ProviderCall(
            endpoint,
            Dialect.COUNT_TOKENS,
            stream=False,
            body=body,
            query=query,
            headers=headers,
            own_key=own_key,
        )
        reply = await self._providers[endpoint.provider].open(call)
        try:
            whole = reply.whole()
            return parse_count(whole if isinstance(whole, bytes) else await whole)
        finally:
            if (closing := reply.close()) is not None:
                await closing


# Functions that a worker calls if the body is large


def read_count(body: bytes, policies: Sequence[AccessPolicy]) -> MessagesRequest:
    """Parse a request to count tokens, check it against policies, and return it without texts."""
    request = parse_request(body)
    if policies:
        policy_filter.require_unflagged(policies, body)
    return request


def ask_count(body: bytes, endpoint: Endpoint) -> bytes:
    """Return the body that asks an endpoint's provider to count tokens."""
    return render_count(body, endpoint)


def question_count(body: bytes, subject: Subject, path: str) -> bytes:
    """Return the body that is sent to guardrails about a request to count tokens."""
    return question(subject, parse_request(body), path, None, body)
