"""The folder of a session: the socket that leads out, and the files that its programs trust.

    <data>/egress/<name>/proxy.sock    the way out; whoever connects to it is the session
                         ca.pem        the session's own authority, and those that an operator adds
                         bundle.pem    these and all that the system trusts
                         node.cjs      makes Node's fetch use the proxy

The whole folder can be shown to a sandbox, read-only: it holds no key and no secret.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from hashlib import sha256
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Final

from tollhouse.kernel.errors import Unavailable
from tollhouse.vault.types import GATEWAY_HOST

_NAME_DIGITS: Final = 12
_READABLE: Final = 0o644
_WAITING: Final = 512
"""Connections that may wait until the proxy takes them."""
_SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, FreeBSD
)


class SessionFolder:
    """One session's folder."""

    def __init__(self, parent: Path, session: str) -> None:
        self.path = parent / sha256(session.encode()).hexdigest()[:_NAME_DIGITS]

    @property
    def socket(self) -> Path:
        """The way out."""
        return self.path / "proxy.sock"

    def make(self) -> socket.socket:
        """Make it, and return a socket that listens in it; raises `Unavailable`."""
        self.remove()
        try:
            self.path.mkdir(mode=0o700, parents=True)
            preload = files("tollhouse.vault.egress") / "node.cjs"
            (self.path / "node.cjs").write_bytes(preload.read_bytes())
            return self._listen()
        except OSError as error:
            self.remove()
            raise Unavailable(
                f"the socket {self.socket} cannot be made ({error.strerror or error}): "
                "choose a data folder with a shorter path, on a local disk"
            ) from None

    def trust(self, certificate: str, more: str | None) -> None:
        """Write what its programs trust."""
        ours = certificate if more is None else f"{more}\n{certificate}"
        everything = f"{system_authorities()}\n{ours}"
        for name, text in (("ca.pem", ours), ("bundle.pem", everything)):
            made = self.path / f".{name}"
            made.write_text(text)
            made.chmod(_READABLE)  # whatever the mask: its reader may be another user
            made.replace(self.path / name)

    def remove(self) -> None:
        """Remove it with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(str(self.socket))
            listener.listen(_WAITING)
        except BaseException:
            listener.close()
            raise
        finally:
            os.umask(mask)
        listener.setblocking(False)  # noqa: FBT003 - its only form
        return listener


def system_authorities() -> str:
    """Return the certificates of the authorities that this system trusts, as PEM; maybe none."""
    paths = ssl.get_default_verify_paths()
    for path in (paths.cafile, paths.openssl_cafile, *_SYSTEM_BUNDLES):
        if path and Path(path).is_file():
            return Path(path).read_text(errors="replace")
    return ""


_PROXY: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_BUNDLE: Final = (
    "SSL_CERT_FILE",  # OpenSSL: Python's ssl, httpx, Go, Ruby
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
)


def environment(proxy: str, folder: PurePath, node_options: str = "") -> dict[str, str]:
    """Return the variables of a program behind the proxy.

    `proxy` is its address, `http://...`, with its password where it has one; `folder` is a
    session's, as the program sees it; `node_options` are what Node is told already.
    """
    found = dict.fromkeys((*_PROXY, *(name.lower() for name in _PROXY)), proxy)
    found |= {"NO_PROXY": "", "no_proxy": ""}
    found |= dict.fromkeys(_BUNDLE, str(folder / "bundle.pem"))
    quoted = str(folder / "node.cjs").replace("\\", "\\\\").replace('"', '\\"')
    preload = f'--require "{quoted}"'
    return found | {
        "NODE_EXTRA_CA_CERTS": str(folder / "ca.pem"),
        "NODE_USE_ENV_PROXY": "1",
        "NODE_OPTIONS": f"{node_options} {preload}".strip(),
    }


def gateway_environment() -> dict[str, str]:
    """Return what leads clients of OpenAI's and Anthropic's to the gateway, without a key."""
    address = f"http://{GATEWAY_HOST}"
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "put-in-by-the-proxy",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "put-in-by-the-proxy",
    }
