"""Cases that are data stand beside their tests, in a file of YAML."""

from pathlib import Path
from typing import Any

import yaml


def tables(module: str) -> dict[str, Any]:
    """Return what stands in the file of a module's name that ends in `.yaml`."""
    return yaml.load(Path(module).with_suffix(".yaml").read_bytes(), yaml.CSafeLoader)
