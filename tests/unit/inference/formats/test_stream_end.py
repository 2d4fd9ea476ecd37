import pytest

from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.kernel.errors import Bug


def test_a_stream_ends_once() -> None:
    ending = StreamEnd("chat")
    ending.mark_written()

    with pytest.raises(Bug, match="a chat stream was ended twice"):
        ending.mark_written()
