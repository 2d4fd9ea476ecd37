"""Has the replies that `reply_tee` recorded parsed by the libraries of their formats."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.support.client_process import CLIENTS, run_client

REPLIES: Final = "TOLLHOUSE_TEST_REPLIES"
"""The variable with the folder of a run's recorded replies; `reply_tee`, a program, has it too."""
LIBRARIES: Final = ("anthropic", "openai", "openrouter")


def rejected_replies(folder: Path) -> list[str]:
    """Return an error text for each reply in a folder that a library refuses."""
    files = sorted(str(each) for each in folder.iterdir())
    if not files:
        return []
    env = {"PYTHONPATH": str(CLIENTS), "FILES": json.dumps(files)}

    def faults_by(library: str) -> list[str]:
        return run_client(library, "check_replies.py", env=env, timeout=300)

    with ThreadPoolExecutor() as at_once:
        found = zip(LIBRARIES, at_once.map(faults_by, LIBRARIES), strict=True)
        return [f"{library}: {fault}" for library, faults in found for fault in faults]
