"""The machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

from tollhouse import __version__

PACKAGES = ("uvicorn", "uvloop", "httptools", "msgspec")


def machine() -> str:
    """Return the machine in one line."""
    return f"{os.cpu_count()} cores, {_cpu_model()}, Linux {platform.release()}"


def own_versions() -> dict[str, str]:
    """Return the versions of the gateway and of what it runs on."""
    found = {"tollhouse": __version__, "Python": platform.python_version()}
    return found | {package: version(package) for package in PACKAGES}


def versions(nginx: str | None) -> dict[str, str]:
    """Return the versions of all programs that take part."""
    return own_versions() | {"nginx": nginx or "not installed"}


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()
