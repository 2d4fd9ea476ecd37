"""What is handed into a run whose agent does not listen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from tollhouse.sandbox.daemon.sessions import active_run
from tollhouse.sandbox.daemon.sessions.active_run import ActiveRun
from tollhouse.sandbox.daemon.sessions.log import SessionLog, SessionRun

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tollhouse.sandbox.daemon.sessions.agent import AgentProcess


class Agent:
    """Says what the test wants, and when."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.says: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, line: dict[str, Any]) -> None:
        self.heard.append(line)

    async def read(self) -> dict[str, Any]:
        return await self.says.get()


async def test_what_the_agent_does_not_take_in_time_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_run, "STEER_SECONDS", 0.03)
    monkeypatch.setattr(active_run, "_REPLY_SECONDS", 0.03)
    log, run, agent = (
        SessionLog(tmp_path),
        SessionRun("r", "s", "manual", {}),
        Agent(),
    )
    with log.writing() as write:
        write.run(run)
    working, deaf = ActiveRun(run, log), cast("AgentProcess", agent)
    driving = asyncio.create_task(working.drive(deaf, {"type": "run"}))
    await asyncio.sleep(0)

    assert not await working.steer("Be quick.")

    steer = agent.heard[-1]
    assert steer["until"] < asyncio.get_running_loop().time()
    assert log.inputs("s") == []
    agent.says.put_nowait({"type": "steered", "input": steer["input"]["id"], "taken": True})
    left = {"keep": 0, "messages": [], "entered": [], "spent": {}, "ended": []}
    agent.says.put_nowait({"type": "ended", "outcome": "completed", "error": None, **left})
    assert await driving is None
    assert [event.kind for event in log.events("s", 0, 10)] == ["run.ended"]
    log.close()
