"""The account that `tollhouse accounts use` chose, for each server, in this user's own settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import platformdirs

from tollhouse.cli.json_objects import fields
from tollhouse.kernel.start import StartError


def remembered(place: str) -> str | None:
    """Return the id of the account that was chosen for a server; None where none was.

    Args:
        place: The server's address, or its data folder.
    """
    chosen = _chosen().get(place)
    return chosen if isinstance(chosen, str) else None


def remember(place: str, account_id: str | None) -> None:
    """Choose an account for a server, or none.

    Raises:
        StartError: The choice cannot be kept.
    """
    chosen = {**_chosen(), place: account_id}
    file = _file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: each for name, each in chosen.items() if each}))
    except OSError as error:
        message = f"{file} cannot be written ({error.strerror}): set TOLLHOUSE_ACCOUNT instead"
        raise StartError(message) from None


def _chosen() -> dict[str, object]:
    try:
        return fields(cast("object", json.loads(_file().read_bytes())))
    except (OSError, ValueError):  # none was chosen yet, or somebody wrote something else there
        return {}


def _file() -> Path:
    return platformdirs.user_config_path("tollhouse", appauthor=False) / "accounts.json"
