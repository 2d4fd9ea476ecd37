"""The fuzz targets: each takes bytes and fails where the code treats them wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz import hosts, inbound, requests, secrets

if TYPE_CHECKING:
    from collections.abc import Callable

TARGETS: dict[str, Callable[[bytes], None]] = {
    "hosts": hosts.check,
    "http": inbound.check,
    "requests": requests.check,
    "secrets": secrets.check,
}
CORPUS = Path(__file__).parent / "corpus"
