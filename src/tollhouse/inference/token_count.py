"""How many tokens a request would take, without asking a model anything: free, and not booked.

A provider that counts is asked; for the others it is an estimate from the request's size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference import policy_filter
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.messages.count_tokens import parse_count
from tollhouse.inference.formats.tokens import estimate_tokens
from tollhouse.inference.providers.base import ProviderCall
from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import ProviderFailure, ProviderRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.identity.types import AccessPolicy
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.providers.base import Provider
    from tollhouse.inference.types import Endpoint


class TokenCounter:
    """Counts the tokens of messages requests."""

    def __init__(self, catalog: Catalog, providers: Mapping[str, Provider]) -> None:
        """Take the models and who serves them."""
        self._catalog = catalog
        self._providers = providers

    async def count(
        self,
        request: MessagesRequest,
        asks: Callable[[Endpoint], Awaitable[bytes]],
        query: str,
        headers: Sequence[tuple[str, str]],
        policies: Sequence[AccessPolicy] = (),
    ) -> int:
        """Return the number of input tokens.

        Args:
            request: What would be asked; nothing of what is said is needed here.
            asks: Returns the body with which an endpoint's provider is asked to count.
            query: The part of its URL behind the `?` that the provider gets.
            headers: Those of its headers that the provider gets.
            policies: What the caller's requests may reach.

        Raises:
            NotFound: No such model.
            Forbidden: The policies allow none of its endpoints.
            ProviderRefused: The provider says that the request is wrong.
        """
        model = self._catalog.find(request.model)
        endpoints = policy_filter.allowed(policies, model.endpoints, lambda each: (model.id, each))
        for endpoint in endpoints:
            dialects = endpoint.dialects or self._providers[endpoint.provider].dialects
            if Dialect.COUNT_TOKENS not in dialects:
                continue
            try:
                return await self._ask(endpoint, await asks(endpoint), query, headers)
            except ProviderRefused:
                raise
            except (ProviderFailure, MalformedResponse):
                # A client that counts wants a number, now; the next endpoint, or an estimate.
                continue
        return estimate_tokens(request.size)

    async def _ask(
        self,
        endpoint: Endpoint,
        body: bytes,
        query: str,
        headers: Sequence[tuple[str, str]],
    ) -> int:
        call = ProviderCall(
            endpoint, Dialect.COUNT_TOKENS, stream=False, body=body, query=query, headers=headers
        )
        reply = await self._providers[endpoint.provider].open(call)
        try:
            return parse_count(await reply.whole())
        finally:
            await reply.close()
