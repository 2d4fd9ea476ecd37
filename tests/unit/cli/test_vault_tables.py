from typing import Any

import pytest

from tollhouse.cli.commands.vault import hidden, verdict


def secret(said: str, *hosts: str, **fields: Any) -> dict[str, Any]:
    return {"verdict": said, "hosts": list(hosts) or None, "hidden": [], **fields}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (secret("released", "a.example", "b.example"), "bound to a.example"),
        (
            secret("released"),
            "bound to no host, and such secrets go to any (vault.release_unbound)",
        ),
        (secret("unbound"), "bound to no host: store it again with --host"),
        (secret("other_host", "b.example", "c.example"), "bound to b.example, c.example"),
        (secret("something_new", "b.example"), "something_new"),
    ],
)
def test_why(found: dict[str, Any], words: str) -> None:
    assert verdict(found, "a.example") == words


def test_what_lost_is_told_with_its_place() -> None:
    lost = [
        {"scope": "attached", "hosts": ["a.example"]},
        {"scope": "workspace", "hosts": None},
    ]
    found = secret("other_host", "b.example", hidden=lost)
    assert hidden(found) == "attached (bound to a.example); workspace's (bound to no host)"
    assert hidden(secret("unbound")) is None
