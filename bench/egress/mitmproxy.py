"""mitmproxy beside ours: the same requests, with an addon that puts the value in.

It lives in an environment of its own, for its requirements are not ours:

    .uv/bin/uv venv .venv-mitmproxy
    .uv/bin/uv pip install --python .venv-mitmproxy mitmproxy==11.0.2

It records nothing, decides nothing, and takes nothing out of answers.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.egress.client import Route
from bench.egress.hosts import PLACEHOLDER, SHOWN
from bench.ports import free_port, wait_until_listening
from bench.processes import Child

if TYPE_CHECKING:
    from bench.egress.target import Upstream

PROGRAM: Final = Path(__file__).parents[2] / ".venv-mitmproxy" / "bin" / "mitmdump"
MISSING: Final = (
    "mitmproxy is not installed, so it is not measured; .uv/bin/uv venv .venv-mitmproxy && "
    ".uv/bin/uv pip install --python .venv-mitmproxy mitmproxy==11.0.2"
)
_START_SECONDS: Final = 60.0
_ADDON: Final = f"""\
def request(flow):
    if flow.request.headers.get("authorization") == {PLACEHOLDER.decode()!r}:
        flow.request.headers["authorization"] = {SHOWN.decode()!r}
"""


def version() -> str | None:
    """Return its version; None where it is not installed."""
    if not PROGRAM.exists():
        return None
    told = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Mitmproxy: (\S+)", told.stdout)
    return found[1] if found else "unknown"


def start(folder: Path, upstream: Upstream) -> tuple[Child, Route]:
    """Start it; return the process and the route through it.

    Raises:
        BenchError: It does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    addon, port = folder / "addon.py", free_port()
    addon.write_text(_ADDON, encoding="utf-8")
    options = {
        "confdir": folder,
        "ssl_verify_upstream_trusted_ca": upstream.authority,
        "http2": "false",
    }
    command = [str(PROGRAM), "--quiet", "--mode", "regular", "--scripts", str(addon)]
    command += ["--listen-host", "127.0.0.1", "--listen-port", str(port)]
    for name, value in options.items():
        command += ["--set", f"{name}={value}"]
    child = Child("mitmproxy", command)
    try:
        wait_until_listening(child, port, _START_SECONDS)
    except BaseException:
        child.stop()
        raise
    trust = folder / "mitmproxy-ca-cert.pem"
    return child, Route(upstream.port, str(trust), proxy_port=port)
