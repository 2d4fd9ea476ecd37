"""What a process makes of the notifications that it hears, in whichever order and how often."""

import json

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from tollhouse.storage.notifications import Notifications, Topic


@pytest.fixture
def bus() -> Notifications:
    return Notifications(sa.make_url("postgresql+asyncpg://localhost/d"))


@pytest.fixture
def told(bus: Notifications) -> list[str | None]:
    told: list[str | None] = []
    bus.subscribe(Topic.KEY, told.append)
    return told


def message(version: int, *refs: str, topic: str = Topic.KEY) -> str:
    return f"{version} {json.dumps([topic, 'another', refs])}"


def test_one_that_comes_twice_is_passed_on_once(bus: Notifications, told: list[str | None]) -> None:
    for version in (2, 1, 2, 1, 3, 3):
        bus.hear(message(version, str(version)))
    assert told == ["2", "1", "3"]


def test_one_without_a_version_is_passed_on_each_time(
    bus: Notifications, told: list[str | None]
) -> None:
    for _ in range(2):
        bus.hear(message(0, "k"))
    assert told == ["k", "k"]


@pytest.mark.parametrize(
    "heard", ["", "x", "1", "1 {}", "x []", "1 [[], 2, 3]", '1 ["key", "a", 5]', '1 ["key", "a"]']
)
def test_what_is_not_understood_is_left_out(
    bus: Notifications, told: list[str | None], heard: str
) -> None:
    with capture_logs() as logs:
        bus.hear(heard)
        bus.hear(message(1, "a", topic="of a later release"))
    assert [each["event"] for each in logs] == ["notification_not_understood"]
    assert told == []


def test_others_are_told_where_one_of_them_raises(bus: Notifications) -> None:
    told: list[str | None] = []

    def fails(_: str | None) -> None:
        raise RuntimeError

    bus.subscribe(Topic.KEY, fails)
    bus.subscribe(Topic.KEY, told.append)
    with capture_logs() as logs:
        bus.hear(message(1, "k"))
    assert told == ["k"]
    assert [each["event"] for each in logs] == ["subscriber_failed"]
