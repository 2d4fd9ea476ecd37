"""nginx as a plain reverse proxy, for comparison. It reads no JSON and knows no keys.

Debian: `apt-get install nginx-light` (or `nginx`). Nothing of the system's configuration is read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from bench.ports import free_port, wait_until_listening
from bench.processes import Child

if TYPE_CHECKING:
    from pathlib import Path

    from bench.target import Upstream

UNBUFFERED = "/unbuffered"
"""Requests below this path are relayed as the bytes come."""
TLS = "/tls"
"""Requests below this path go to the upstream's TLS port, whose certificate is verified."""
SLOW = "/slow"
"""As `UNBUFFERED`, to the upstream's slow port."""

MISSING = "nginx is not installed, so there is no ratio; on Debian: apt-get install nginx-light"
_START_SECONDS = 10.0

_CONFIG = """\
{user}daemon off;
worker_processes 1;
error_log stderr error;
pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_buffer_size 64k;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream fixed {{
        server 127.0.0.1:{ports.plain};
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    upstream fixed_tls {{
        server 127.0.0.1:{ports.tls};
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    upstream fixed_slow {{
        server 127.0.0.1:{ports.slow};
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        location / {{ proxy_pass http://fixed; }}
        location {unbuffered}/ {{
            proxy_buffering off;
            proxy_pass http://fixed/;
        }}
        location {slow}/ {{
            proxy_buffering off;
            proxy_pass http://fixed_slow/;
        }}
        location {tls}/ {{
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_trusted_certificate {authority};
            proxy_pass https://fixed_tls/;
        }}
    }}
}}
"""


def find() -> str | None:
    """Return where nginx is, or None."""
    # Debian keeps it where only root's path looks.
    places = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
    return shutil.which("nginx", path=places)


def version(program: str) -> str:
    """Return its version."""
    said = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr
    found = re.search(r"nginx/(\S+)", said)
    return found[1] if found else "unknown"


def config(folder: Path, port: int, upstream: Upstream, *, root: bool) -> str:
    """Return a configuration.

    Args:
        folder: Where it may write.
        port: Where it listens.
        upstream: The server behind it.
        root: Whether it is started by root; its worker stays root then, to reach the folder.
    """
    return _CONFIG.format(
        user="user root;\n" if root else "",
        folder=folder,
        port=port,
        ports=upstream.ports,
        authority=upstream.authority,
        unbuffered=UNBUFFERED,
        slow=SLOW,
        tls=TLS,
    )


def start(program: str, folder: Path, upstream: Upstream) -> tuple[Child, int]:
    """Start nginx in front of an upstream.

    Returns:
        The process and its port.

    Raises:
        BenchError: It does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    path = folder / "nginx.conf"
    path.write_text(config(folder, port, upstream, root=os.geteuid() == 0), encoding="utf-8")
    child = Child("nginx", [program, "-p", str(folder), "-e", "stderr", "-c", str(path)])
    try:
        wait_until_listening(child, port, _START_SECONDS)
    except BaseException:
        child.stop()
        raise
    return child, port
