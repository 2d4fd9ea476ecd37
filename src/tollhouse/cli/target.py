"""Which server a control command means: decisions only, nothing is opened.

    --base-url                  that server, over TCP, with a key
    --data-dir                  the data folder's own server
    TOLLHOUSE_BASE_URL          that server, over TCP, with a key
    TOLLHOUSE_DATA_DIR, or the settings' default: the data folder's own server

A flag is somebody's wish of this moment, so it stands before the environment. What acts for a key
(inference, batches) goes to the address of a data folder's server, and shows it the key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tollhouse.cli.values import header_text
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.secret import Secret

# As in `settings.environment`, whose import costs a remote command more than all the rest.
BASE_URL = "TOLLHOUSE_BASE_URL"
API_KEY = "TOLLHOUSE_API_KEY"
API_PREFIXES = ("/api/v1", "/v1")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - not bound, only recognised


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """What the command line says about the server; None where it says nothing."""

    base_url: str | None = None
    api_key: Secret | None = None
    data_dir: Path | None = None
    config: Path | None = None


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server at an address."""

    base_url: str
    """Ends in `/v1`."""
    api_key: Secret | None


@dataclass(frozen=True, slots=True)
class DataFolderServer:
    """The server of a data folder; the settings know which folder that is."""

    data_dir: Path | None
    config: Path | None
    api_key: Secret | None = None
    """What to show at its address; None to come as its operator."""


def choose_server(
    flags: ServerFlags, env: Mapping[str, str], *, by_key: bool = False
) -> RemoteServer | DataFolderServer:
    """Return the server that a command means; StartError where its flags contradict each other.

    `by_key` is a command that acts for a key, also on a data folder. An empty variable of the
    environment counts as not set.
    """
    if flags.base_url is not None and flags.data_dir is not None:
        raise StartError("--base-url and --data-dir name two servers: leave one of them out")
    if flags.base_url is not None:
        return RemoteServer(api_url(flags.base_url, "--base-url"), _key(flags, env))
    from_env = env.get(BASE_URL, "").strip()
    if flags.data_dir is None and from_env:
        return RemoteServer(api_url(from_env, BASE_URL), _key(flags, env))
    if by_key:
        return DataFolderServer(flags.data_dir, flags.config, _key(flags, env))
    if flags.api_key is not None:
        raise StartError(
            "--api-key is for a server at an address: add --base-url "
            "(the server of a data folder asks this machine for no key)"
        )
    return DataFolderServer(flags.data_dir, flags.config)


def api_url(text: str, source: str) -> str:
    """Return an address as `http://host:8080/v1`, with or without `/v1` or `/api/v1` at its end.

    StartError says that the source gave no such address.
    """
    url = text.strip().rstrip("/")
    if not _is_usable(url):
        raise StartError(
            f"{source} must be an address like https://gateway.example or http://127.0.0.1:8080, "
            "without user, password or query"
        )
    prefix = next(filter(url.endswith, API_PREFIXES), "")
    return f"{url.removesuffix(prefix)}/v1"


def origin(address: str) -> str:
    """Return the address that a server was bound to as a client on its machine writes it."""
    parts = urlsplit(address)
    host = _EVERYWHERE.get(parts.hostname or "")
    return address if host is None else f"{parts.scheme}://{host}:{parts.port}"


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:  # a broken IPv6 address, or a port that is no number
        return False
    named = parts.scheme in {"http", "https"} and bool(parts.hostname) and port_is_valid
    return named and not (parts.query or parts.fragment or "@" in parts.netloc or " " in url)


def _key(flags: ServerFlags, env: Mapping[str, str]) -> Secret | None:
    if flags.api_key is not None:
        return Secret(header_text(flags.api_key.reveal(), "--api-key"))
    from_env = env.get(API_KEY, "").strip()
    return Secret(header_text(from_env, API_KEY)) if from_env else None
