"""How the agent's process starts."""

from __future__ import annotations

import json
import subprocess
import sys

LOAD = """
import gc, json, sys
from tollhouse.sandbox.agent.main import load_runner
late = "pydantic_ai" not in sys.modules
load_runner()
unused = sorted(name for name in sys.modules if name.startswith("aiohttp."))
print(json.dumps({"late": late, "unused": unused, "collects": gc.isenabled()}))
"""


def test_its_library_is_loaded_without_what_no_run_uses() -> None:
    ran = subprocess.run([sys.executable, "-c", LOAD], check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == {"late": True, "unused": [], "collects": True}
