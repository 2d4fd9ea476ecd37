"""The vault: its keys, its service, and the egress proxy that releases its secrets."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.api.request_rules import PREFIXES
from tollhouse.apps.bootstrap import OPERATOR
from tollhouse.kernel.errors import StartError
from tollhouse.vault.disclosures import Disclosures, ResolutionCache
from tollhouse.vault.egress.messages import SessionLimits, StartProxy
from tollhouse.vault.egress.secret_broker import SecretBrokerServer
from tollhouse.vault.egress.service import EgressService, ProgramSessions
from tollhouse.vault.key_encryption import (
    CommandKeys,
    Keyring,
    MalformedKey,
    SymmetricKeys,
    decode_key,
    open_local,
)
from tollhouse.vault.maintenance import VaultMaintenance, check_keys, has_vaults
from tollhouse.vault.service import VaultContext, VaultService

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.apps.core import Core
    from tollhouse.settings.sections import Settings
    from tollhouse.settings.service_sections import VaultSettings
    from tollhouse.storage.data_folder import DataFolder
    from tollhouse.vault.key_encryption import KeyEncryption

_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound, only recognised


@dataclass(slots=True)
class VaultComponents:
    """The vault's services, and the egress proxy of a server."""

    context: VaultContext
    service: VaultService
    maintenance: VaultMaintenance
    resolutions: ResolutionCache
    egress: EgressService | None = None
    """None where a single command is served."""
    programs: ProgramSessions | None = None
    """Sessions of the proxy for programs outside of interns; None as above."""

    async def start(self) -> None:
        """Remove what sessions of a killed server left."""
        if self.programs is not None:
            await self.programs.sweep(OPERATOR)

    async def stop(self, seconds: float) -> None:
        """End every session, and the proxy, at once."""
        del seconds
        if self.programs is not None:
            await self.programs.stop()
        if self.egress is not None:
            await self.egress.stop()


async def open_keys(settings: VaultSettings, core: Core, folder: DataFolder) -> KeyEncryption:
    """Return the key-encryption keys that the settings name; they open what there is.

    Raises:
        StartError: They are not there, or they are others; nothing was changed.
    """
    async with core.database.reading() as read:
        keys = _keys(settings, folder, make=not await has_vaults(read))
        await check_keys(read, keys)
    return keys


def build_vault(settings: VaultSettings, core: Core, keys: KeyEncryption) -> VaultComponents:
    """Return the vault on a database whose schema is there, without an egress proxy."""
    context = VaultContext(
        database=core.database,
        identity=core.identity,
        audit=core.audit,
        keyring=Keyring(keys),
        clock=core.clock,
        ids=core.ids,
        release_unbound=settings.release_unbound,
    )
    service = VaultService(context)
    resolutions = ResolutionCache(core.database, service)
    return VaultComponents(context, service, VaultMaintenance(context, service), resolutions)


def add_egress(
    vault: VaultComponents,
    settings: Settings,
    folder: DataFolder,
    address: tuple[str, int],
    routes: Iterable[str],
) -> EgressService:
    """Give the vault an egress proxy, whose process starts with its first session; return it.

    Sessions may request the routes, paths below the version segment, from the gateway's address.

    Raises:
        StartError: A file of certificates cannot be used.
    """
    paths = [f"{prefix}{route}" for prefix in PREFIXES for route in routes]
    host, port = address
    begin = StartProxy(
        gateway=(_ANY_ADDRESS.get(host, host), port),
        routes=paths,
        limits=SessionLimits(
            settings.egress.max_connections,
            settings.egress.idle_seconds,
            settings.egress.total_seconds,
            settings.egress.bytes_per_minute,
        ),
        tunnel_hosts=list(settings.egress.tunnel_hosts),
        allow_ports=list(settings.egress.allow_ports),
        allow_networks=[str(each) for each in settings.outbound.allow_networks],
        addresses=dict(_pair(each) for each in settings.outbound.addresses),
        authorities=extra_authorities(settings),
    )
    disclosures = Disclosures(vault.context, vault.service, vault.resolutions)
    answers = SecretBrokerServer(vault.service, vault.resolutions, disclosures)
    vault.egress = EgressService(folder.egress, answers, lambda: begin, _arguments(settings))
    vault.programs = ProgramSessions(vault.context, vault.egress)
    return vault.egress


def extra_authorities(settings: Settings) -> str | None:
    """Return the certificates of further authorities that the settings name, as PEM.

    Raises:
        StartError: They cannot be read.
    """
    file = settings.outbound.extra_ca_file
    if file is None:
        return None
    try:
        text = Path(file).read_text()
        ssl.create_default_context().load_verify_locations(cadata=text)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise StartError(f"outbound.extra_ca_file: {file} cannot be used ({error})") from None
    return text


def _arguments(settings: Settings) -> list[str]:
    found = ["--log-level", settings.logging.level, "--log-format", settings.logging.format]
    if settings.egress.user is not None:
        found += ["--user", settings.egress.user]
    return [*found, "--core-dumps"] if settings.server.core_dumps else found


def _pair(text: str) -> tuple[str, str]:
    host, _, address = text.partition("=")
    return host, address


def _keys(settings: VaultSettings, folder: DataFolder, *, make: bool) -> KeyEncryption:
    if settings.keys == "command":
        if not settings.command:
            raise StartError("vault.command: name the program that wraps keys")
        return CommandKeys(settings.command, settings.command_seconds)
    if settings.keys == "settings":
        return SymmetricKeys(_from_settings(settings))
    found = open_local(folder.vault_keys, make=make)
    if found is None:
        raise StartError(
            f"the vault's key file {folder.vault_keys} is not there, and vaults are sealed with "
            "its key: put its copy back"
        )
    return found


def _from_settings(settings: VaultSettings) -> list[bytes]:
    if settings.key is None:
        raise StartError("vault.key: is needed where vault.keys is settings")
    named = {"vault.key": settings.key}
    named |= {f"vault.previous_keys[{at}]": key for at, key in enumerate(settings.previous_keys)}
    keys: list[bytes] = []
    for place, key in named.items():
        try:
            keys.append(decode_key(key.reveal()))
        except MalformedKey as error:
            raise StartError(f"{place}: {error}") from None
    return keys
