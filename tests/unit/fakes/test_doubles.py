import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.support.builders import api_key, charge, generation_record
from tests.support.clock import START, FakeClock
from tests.support.ids import SequentialIds

if TYPE_CHECKING:
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource


class TestFakeClock:
    def test_is_a_clock(self) -> None:
        clock: Clock = FakeClock()
        assert clock.now() == START

    def test_stands_still(self, clock: FakeClock) -> None:
        assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic())

    def test_advances_both_clocks(self, clock: FakeClock) -> None:
        clock.advance(1.5)
        assert clock.now() == START + timedelta(seconds=1.5)
        assert clock.monotonic() == pytest.approx(1.5)

    def test_does_not_advance_backwards(self, clock: FakeClock) -> None:
        with pytest.raises(ValueError, match="does not go back"):
            clock.advance(-1)

    def test_can_be_set_back_while_no_time_passes(self, clock: FakeClock) -> None:
        clock.set(START - timedelta(days=1))
        assert clock.now() == START - timedelta(days=1)
        assert clock.monotonic() == 0


class TestSequentialIds:
    def test_is_an_id_source(self) -> None:
        ids: IdSource = SequentialIds()
        assert ids.uuid() == "00000000-0000-4000-8000-000000000001"

    def test_never_repeats(self, ids: SequentialIds) -> None:
        assert (
            len({ids.uuid() for _ in range(100)} | {ids.generation(0) for _ in range(100)}) == 200
        )

    def test_counts_the_same_each_time(self) -> None:
        one, other = SequentialIds(), SequentialIds()
        assert [one.uuid() for _ in range(3)] == [other.uuid() for _ in range(3)]

    def test_differs_with_its_prefix(self) -> None:
        one, other = SequentialIds("a"), SequentialIds("b")
        assert one.uuid() == "a0000000-0000-4000-8000-000000000001"
        assert one.key_material() != other.key_material()

    def test_has_the_shape_of_real_ids(self, ids: SequentialIds) -> None:
        assert re.fullmatch(r"gen-17-[0-9a-f]{20}", ids.generation(17))
        assert re.fullmatch(r"[\w-]{43}", ids.key_material())

    @pytest.mark.parametrize("prefix", ["xyz", "AB", "123456789"])
    def test_refuses_a_prefix_that_is_not_hex(self, prefix: str) -> None:
        with pytest.raises(ValueError, match="hex digits"):
            SequentialIds(prefix)


class TestBuilders:
    def test_take_any_field_of_a_record(self) -> None:
        record = generation_record(id="g", model="other/model", cost_nano=5)
        assert (record.id, record.model, record.cost_nano) == ("g", "other/model", 5)

    def test_take_any_field_of_a_charge(self) -> None:
        assert charge(5, provider_cost_nano=None).provider_cost_nano is None

    def test_take_any_field_of_a_key(self) -> None:
        assert api_key(disabled=True).disabled

    def test_refuse_a_field_that_does_not_exist(self) -> None:
        with pytest.raises(TypeError, match="colour"):
            api_key(colour="red")
