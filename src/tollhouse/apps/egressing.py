"""The egress proxy from the gateway's side, put together."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.api.policy import PREFIXES
from tollhouse.audit.types import INSTALLATION, AuditAction, AuditEntry
from tollhouse.kernel.start import StartError
from tollhouse.vault.egress.answers import Answers
from tollhouse.vault.egress.messages import Begin, Limits
from tollhouse.vault.egress.programs import Programs
from tollhouse.vault.egress.service import Egress
from tollhouse.vault.releases import Releases

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.apps.core import Core
    from tollhouse.apps.vaulting import Vaulting
    from tollhouse.settings.sections import Settings
    from tollhouse.storage.data_folder import DataFolder

_OPERATOR: Final = "operator"
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound, only recognised


@dataclass(frozen=True, slots=True)
class Egressing:
    """Everything of the proxy on the gateway's side."""

    egress: Egress
    programs: Programs

    async def stop(self) -> None:
        """End every session, and the proxy; may be asked for twice."""
        await self.programs.stop()
        await self.egress.stop()


@dataclass(frozen=True)
class Outside:
    """What the settings say of destinations, read once."""

    settings: Settings

    @cached_property
    def authorities(self) -> str | None:
        """Certificates of further authorities, as PEM.

        Raises:
            StartError: They cannot be read.
        """
        file = self.settings.outbound.extra_ca_file
        if file is None:
            return None
        try:
            text = Path(file).read_text()
            ssl.create_default_context().load_verify_locations(cadata=text)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            message = f"outbound.extra_ca_file: {file} cannot be used ({error})"
            raise StartError(message) from None
        return text


def build_egressing(
    settings: Settings,
    vaulting: Vaulting,
    folder: DataFolder,
    address: tuple[str, int],
    routes: Iterable[str],
) -> Egressing:
    """Return the proxy's side of the gateway; no process is started.

    Args:
        settings: Limits and destinations.
        vaulting: Who knows the secrets.
        folder: Where sessions have their folders.
        address: Where the gateway listens.
        routes: The paths that sessions may ask it for, below the version segment.

    Raises:
        StartError: A file of certificates cannot be used.
    """
    outside = Outside(settings)
    _ = outside.authorities  # a start says what is wrong with them
    releases = Releases(vaulting.context, vaulting.service, vaulting.resolutions)
    paths = [f"{prefix}{route}" for prefix in PREFIXES for route in routes]
    host, port = address
    begin = Begin(
        gateway=(_ANY_ADDRESS.get(host, host), port),
        routes=paths,
        limits=Limits(
            settings.egress.max_connections,
            settings.egress.idle_seconds,
            settings.egress.total_seconds,
            settings.egress.bytes_per_minute,
        ),
        tunnel_hosts=list(settings.egress.tunnel_hosts),
        allow_ports=list(settings.egress.allow_ports),
        allow_networks=[str(each) for each in settings.outbound.allow_networks],
        addresses=dict(_pair(each) for each in settings.outbound.addresses),
        authorities=outside.authorities,
    )
    egress = Egress(
        folder.egress,
        Answers(vaulting.service, vaulting.resolutions, releases),
        lambda: begin,
        _arguments(settings),
    )
    return Egressing(egress, Programs(vaulting.context, egress))


async def record_openings(settings: Settings, core: Core, vaulting: Vaulting) -> None:
    """Write into the record what an operator has opened, where that is not its last word."""
    authorities = Outside(settings).authorities
    entry = AuditEntry(
        AuditAction.OUTBOUND_OPENED,
        _OPERATOR,
        name=None if authorities is None else f"sha256:{sha256(authorities.encode()).hexdigest()}",
        hosts=tuple(str(each) for each in settings.outbound.allow_networks),
    )
    async with core.database.reading() as read:
        last = await vaulting.audit.last(read, INSTALLATION, AuditAction.OUTBOUND_OPENED)
    if last == entry or (last is None and not entry.hosts and entry.name is None):
        return
    async with core.database.writing() as write:
        await vaulting.audit.record(write, INSTALLATION, [entry])


def _arguments(settings: Settings) -> list[str]:
    found = ["--log-level", settings.logging.level, "--log-format", settings.logging.format]
    if settings.egress.user is not None:
        found += ["--user", settings.egress.user]
    return [*found, "--core-dumps"] if settings.server.core_dumps else found


def _pair(text: str) -> tuple[str, str]:
    host, _, address = text.partition("=")
    return host, address
