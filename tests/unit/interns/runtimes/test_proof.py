"""Whether sandboxes can be made is tried until it worked, and again once one did not start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tollhouse.interns.runtimes import bubblewrap
from tollhouse.interns.runtimes.base import RuntimeFailed
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.kernel.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from tollhouse.interns.runtimes.base import Launch


async def test_a_trial_that_worked_is_enough_until_a_sandbox_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["no bubblewrap", None, "no namespaces"]

    def tried(*_: Any, **__: Any) -> str | None:
        return answers.pop(0)

    def refused(_: Launch) -> None:
        raise OSError

    monkeypatch.setattr(bubblewrap, "find_problem", tried)
    runtime = BubblewrapRuntime(tmp_path, SystemClock())
    assert [runtime.problem() for _ in range(4)] == ["no bubblewrap", None, None, None]
    monkeypatch.setattr(runtime, "_prepare", refused)
    with pytest.raises(RuntimeFailed, match="the machine refused"):
        await runtime.start(cast("Launch", SimpleNamespace(name="ada")))
    assert runtime.problem() == "no namespaces"


async def test_what_was_half_made_is_swept_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []
    group = SimpleNamespace(remove=lambda: swept.append("its group"))

    async def killed(*_: Any) -> None:
        raise OSError

    def ended(mark: str, running: frozenset[str]) -> None:
        swept.append(mark.rpartition("-")[2])
        assert not running

    monkeypatch.setattr(bubblewrap, "kill_marked", ended)
    runtime = BubblewrapRuntime(tmp_path, SystemClock())
    monkeypatch.setattr(runtime, "_prepare", lambda _: group)
    monkeypatch.setattr(runtime, "_start", killed)
    with pytest.raises(RuntimeFailed, match="the machine refused"):
        await runtime.start(cast("Launch", SimpleNamespace(name="ada")))
    assert swept == ["ada", "its group"]
