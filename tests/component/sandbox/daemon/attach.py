"""Does what a command does once it has asked the gateway for the way to an intern's terminal."""

import asyncio
import os
import sys

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns.daemon import DaemonCredentials
from tollhouse.cli.interns.terminal import RetryPauses, attach
from tollhouse.kernel.secret import Secret

access = DaemonCredentials(os.environ["ORIGIN"], Secret(os.environ["TOKEN"]))
pauses = RetryPauses(0.05, 0.2, float(os.environ.get("GIVE_UP", "30")))
try:
    code = asyncio.run(attach(access, name="ada", session=os.environ.get("SESSION"), pauses=pauses))
except CommandFailed as failed:
    sys.exit(f"failed: {failed}")
sys.exit(code)
