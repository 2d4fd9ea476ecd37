"""A provider in a process of its own, and the gateway's configuration that leads to it."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import httpx2

from tests.support.canaries import PROVIDER_KEY_NAME


class UpstreamProcess:
    """A running fake provider."""

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"

    def seen(self) -> dict[str, object]:
        """Return the received requests, and those that the caller broke off."""
        return httpx2.get(f"{self.origin}/_seen").json()

    def config(self, models: Mapping[str, str], more: str = "", provider: str = "") -> str:
        """Return a configuration whose models are on this provider.

        Args:
            models: Id in the catalogue -> the provider's name, which chooses the behaviour.
            more: Further YAML.
            provider: Further lines of the provider, indented by four spaces.
        """
        entries = "".join(
            f"  - id: {json.dumps(model)}\n"
            "    context_length: 8192\n"
            "    endpoints:\n"
            f"      - {{provider: cutter, model: {json.dumps(behaviour)}, pricing: "
            '{prompt: "0.000001", completion: "0.000002"}}\n'
            for model, behaviour in models.items()
        )
        return (
            "providers:\n"
            "  - slug: cutter\n"
            "    name: Cutter\n"
            "    kind: openai_compatible\n"
            f"    base_url: {self.origin}/v1\n"
            f"    api_key: ${{{PROVIDER_KEY_NAME}:-nobody's}}\n"
            f"{provider}"
            f"models:\n{entries}{more}"
        )


@contextmanager
def start_upstream() -> Generator[UpstreamProcess]:
    """Run a provider until the end of the block."""
    command = [sys.executable, "-m", "tests.support.providers.openai_upstream", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield UpstreamProcess(json.loads(process.stdout.readline())["port"])
        finally:
            process.kill()
