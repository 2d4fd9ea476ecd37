"""What `tollhouse serve` says once it serves. Pure.

The keys of a first start stand here and nowhere else.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.cli.target import origin

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Serving:
    """A gateway that has begun to serve."""

    address: str
    """`http://host:port`, as it was bound."""
    data_dir: Path
    api_key: str | None
    """The first API key; None where the folder had an account already."""
    management_key: str | None
    account_id: str | None
    workspace_id: str | None
    example_model: str | None
    """A model of the catalogue that can be asked; None where there is none."""

    @property
    def origin(self) -> str:
        """The address as a client on this machine writes it."""
        return origin(self.address)

    @property
    def base_url(self) -> str:
        """What client libraries want."""
        return f"{self.origin}/v1"


def as_json(serving: Serving) -> str:
    """Return one line of JSON; the keys are null where this is no first start."""
    return json.dumps(
        {
            "address": serving.origin,
            "base_url": serving.base_url,
            "data_dir": str(serving.data_dir),
            "api_key": serving.api_key,
            "management_key": serving.management_key,
            "account_id": serving.account_id,
            "workspace_id": serving.workspace_id,
            "example_model": serving.example_model,
        }
    )


def as_text(serving: Serving, program: str) -> str:
    """Return lines for a person.

    Args:
        serving: The gateway.
        program: How this program was called, for the commands that are shown.
    """
    lines = [f"Tollhouse serves {serving.base_url}", f"Its data is in {serving.data_dir}"]
    if serving.api_key is None:
        folder = shlex.quote(str(serving.data_dir))
        lines.append(f"Another key: {program} keys create NAME --data-dir {folder}")
    else:
        lines += [
            "",
            f"API key         {serving.api_key}",
            f"Management key  {serving.management_key}",
            "Keep them now: they are shown this once.",
            "",
            *_example(serving, serving.api_key),
        ]
    return "\n".join(lines)


def _example(serving: Serving, api_key: str) -> list[str]:
    if serving.example_model is None:
        return ["No model is configured yet, so there is nothing to ask."]
    return ["Try it:", "", f"  {curl(serving.base_url, api_key, serving.example_model)}"]


def curl(base_url: str, api_key: str, model: str) -> str:
    """Return one line for a shell that asks a model something."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    words = [
        "curl",
        f"{base_url}/chat/completions",
        "-H",
        f"Authorization: Bearer {api_key}",
        "-H",
        "Content-Type: application/json",
        "-d",
        json.dumps(body),
    ]
    return shlex.join(words)
