from pathlib import Path

from bench.money import STEPS, measure


def test_every_step_of_the_money_is_measured(tmp_path: Path) -> None:
    costs = measure(tmp_path, 320)
    assert set(costs) == {*STEPS, "book", "total"}
    assert sum(costs.values()) > costs["total"] > 0
