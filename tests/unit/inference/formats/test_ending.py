import pytest

from tollhouse.inference.formats.ending import Ending
from tollhouse.kernel.errors import Bug


def test_a_stream_ends_once() -> None:
    ending = Ending("chat")
    ending.come()

    with pytest.raises(Bug, match="a chat stream was ended twice"):
        ending.come()
