"""The fuzz targets: each takes bytes and fails where the code treats them wrongly."""

from collections.abc import Callable
from pathlib import Path

from tests.fuzz import hosts, inbound, requests, secrets

TARGETS: dict[str, Callable[[bytes], None]] = {
    "hosts": hosts.check,
    "http": inbound.check,
    "requests": requests.check,
    "secrets": secrets.check,
}
CORPUS = Path(__file__).parent / "corpus"
