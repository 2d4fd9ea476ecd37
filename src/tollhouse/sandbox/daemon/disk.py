"""Whether the workspace is full: the host then takes the right to write from every process.

Source: getrlimit(2), RLIMIT_FSIZE.
"""

from __future__ import annotations

import resource


def is_full() -> bool:
    """Tell whether nothing can be written until something is deleted."""
    return resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 0
