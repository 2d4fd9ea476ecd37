"""Whether each provider can be reached and takes the gateway's key: `config check --live`."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.apps.gateway import open_upstream
from tollhouse.inference.providers.registry import build_providers
from tollhouse.kernel.errors import ProviderFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.providers.base import Provider
    from tollhouse.settings.sections import Settings

_SECONDS: Final = 15.0
_NO_LIST: Final = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED))


class ProviderCheck(NamedTuple):
    """What came of asking a provider."""

    ok: bool
    message: str


async def check_providers(settings: Settings) -> Mapping[str, ProviderCheck]:
    """Ask every provider that is no simulated one for its list of models.

    Returns:
        What came of it, by slug.
    """
    real = [each for each in settings.providers if each.kind != "simulated"]
    providers = build_providers(real, settings.upstream, partial(open_upstream, settings))
    try:
        found = await asyncio.gather(*map(_check, providers.values()))
    finally:
        for provider in providers.values():
            await provider.close()
    return dict(zip(providers, found, strict=True))


async def _check(provider: Provider) -> ProviderCheck:
    try:
        async with asyncio.timeout(_SECONDS):
            await provider.check()
    except ProviderFailure as error:
        if error.provider_status in _NO_LIST:
            return ProviderCheck(ok=True, message="answers, has no list of models: key not tried")
        return ProviderCheck(ok=False, message=error.message)
    except TimeoutError:
        message = f"{provider.name} did not answer in {_SECONDS:.0f} seconds."
        return ProviderCheck(ok=False, message=message)
    return ProviderCheck(ok=True, message="ok")
