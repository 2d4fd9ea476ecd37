"""The environment of programs that are started in the sandbox."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tollhouse.sandbox.daemon.settings import Settings

_SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
# Nothing of the daemon's own environment but what says how to speak and where things are.
_PASSED_ON: Final = frozenset(("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"))


def program_environment(settings: Settings) -> dict[str, str]:
    """Return all variables of a program; its home is the workspace, where the daemon has none."""
    own = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith("LC_")
    }
    return {
        "HOME": settings.workspace,
        **own,
        "TOLLHOUSE_INTERN_ID": settings.intern_id,
        "TOLLHOUSE_INTERN_NAME": settings.intern_name,
        **settings.environment,
        "SHELL": next((path for path in _SHELLS if os.access(path, os.X_OK)), _SHELLS[-1]),
    }
