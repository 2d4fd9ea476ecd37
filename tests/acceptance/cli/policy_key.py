"""A key with a policy that a test sets."""

from pathlib import Path
from typing import Any

import httpx2

from tests.acceptance.cli.command import CommandRunner
from tests.support.server_process import ServerProcess


class KeyWithPolicy:
    """An API key of its own, and its policy."""

    def __init__(self, server: ServerProcess, runner: CommandRunner, folder: Path) -> None:
        self.server = server
        self._runner = runner
        self._folder = folder
        made = self._command("create", "policed").json()
        self._key, self._hash = made["key"], made["hash"]

    def set_policy(self, text: str) -> dict[str, Any]:
        file = self._folder / "policy.yaml"
        file.write_text(text)
        return self._command("set", self._hash, "--policy", file).json()["policy"]

    def policy(self) -> dict[str, Any]:
        return self._command("show", self._hash).json()["policy"]

    def ask(self, path: str = "/chat/completions", **fields: Any) -> httpx2.Response:
        body = {"model": "simulated/echo", "messages": [{"role": "user", "content": "hi"}]}
        url = f"{self.server.base_url}{path}"
        headers = {"authorization": f"Bearer {self._key}"}
        return httpx2.post(url, json=body | fields, headers=headers, timeout=20)

    def delete(self) -> None:
        self._command("delete", self._hash)

    def _command(self, *args: str | Path) -> Any:
        return self._runner.run("keys", *args, "--data-dir", self.server.data_dir, "--json")
