"""Every generation is driven by callbacks, and once more as a task."""

import pytest

from tests.unit.inference.fakes import PipelineFixture


@pytest.fixture(autouse=True, params=["callbacks", "tasks"])
def _driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PipelineFixture, "as_tasks", request.param == "tasks")
