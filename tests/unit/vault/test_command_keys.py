"""Key-encryption keys behind a program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tollhouse.vault.key_encryption import CommandKeys, KeysUnavailable

if TYPE_CHECKING:
    from pathlib import Path

# Stands for a key management service: it turns bytes round and notes the vault beside them.
SERVICE = """
import base64, json, sys
asked = json.load(sys.stdin)
if sys.argv[1] == "wrap":
    key = base64.b64decode(asked["key"])[::-1]
    wrapped = key + asked["vault"].encode()
    print(json.dumps({"wrapped": base64.b64encode(wrapped).decode()}))
else:
    wrapped = base64.b64decode(asked["wrapped"])
    if wrapped[32:] != asked["vault"].encode():
        sys.exit(3)
    print(json.dumps({"key": base64.b64encode(wrapped[:32][::-1]).decode()}))
"""


def program(tmp_path: Path, text: str) -> CommandKeys:
    script = tmp_path / "kms.py"
    script.write_text(text)
    return CommandKeys([sys.executable, str(script)], seconds=20)


async def test_a_program_wraps_and_unwraps(tmp_path: Path) -> None:
    keys = program(tmp_path, SERVICE)
    wrapped = await keys.wrap(bytes(range(32)), "v1")
    assert wrapped.data == bytes(range(32))[::-1] + b"v1"
    assert keys.knows(wrapped.kek_id)
    assert await keys.unwrap(wrapped, "v1") == bytes(range(32))


async def test_a_program_that_refuses_is_unavailable(tmp_path: Path) -> None:
    keys = program(tmp_path, SERVICE)
    wrapped = await keys.wrap(bytes(32), "v1")
    with pytest.raises(KeysUnavailable, match="exit code 3 for unwrap"):
        await keys.unwrap(wrapped, "v2")


@pytest.mark.parametrize("said", ["", "{}", "[]", '{"wrapped": 1}', '{"wrapped": "%%%"}', "x"])
async def test_a_wrong_answer_is_not_repeated(tmp_path: Path, said: str) -> None:
    keys = program(tmp_path, f"print({said!r})")
    with pytest.raises(KeysUnavailable, match="no 'wrapped' in base64"):
        await keys.wrap(bytes(32), "v1")


async def test_an_opened_key_of_another_size_is_refused(tmp_path: Path) -> None:
    keys = program(tmp_path, """print('{"key": "AAAA"}')""")
    wrapped = await program(tmp_path, SERVICE).wrap(bytes(32), "v1")
    keys = program(tmp_path, """print('{"key": "AAAA"}')""")
    with pytest.raises(KeysUnavailable, match="another size"):
        await keys.unwrap(wrapped, "v1")


async def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "kms.py"
    script.write_text("import time; time.sleep(600)")
    keys = CommandKeys([sys.executable, str(script)], seconds=0.2)
    with pytest.raises(KeysUnavailable, match="took longer than"):
        await keys.wrap(bytes(32), "v1")


async def test_a_program_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    keys = CommandKeys([str(tmp_path / "missing")], seconds=20)
    with pytest.raises(KeysUnavailable, match="cannot be run"):
        await keys.wrap(bytes(32), "v1")
