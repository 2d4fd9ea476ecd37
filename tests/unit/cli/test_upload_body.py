"""A body stops where its server has answered, and a connection under TLS is left alone."""

import httpcore2
import pytest

from tollhouse.cli.client import UploadBody

PIECES = [b"one", b"two", b"three"]


class Stream:
    """A connection on which something has come, or not."""

    def __init__(self, *, readable: bool) -> None:
        self.readable = readable

    def get_extra_info(self, name: str) -> bool:
        assert name == "is_readable"
        return self.readable


async def test_all_of_it_is_sent_while_nothing_comes() -> None:
    body = UploadBody(PIECES)
    assert [each async for each in body] == PIECES
    body = UploadBody(PIECES)
    await body.trace("connection.connect_tcp.complete", {"return_value": Stream(readable=False)})
    assert [each async for each in body] == PIECES


async def test_it_ends_where_the_server_has_answered() -> None:
    stream = Stream(readable=False)
    body = UploadBody(PIECES)
    await body.trace("connection.connect_tcp.started", {})
    await body.trace("connection.connect_tcp.complete", {"return_value": stream})
    pieces = aiter(body)
    assert await anext(pieces) == b"one"
    stream.readable = True
    with pytest.raises(httpcore2.WriteError):
        await anext(pieces)


@pytest.mark.parametrize("prefix", ["connection", "proxy"])
async def test_under_tls_what_comes_may_be_no_answer(prefix: str) -> None:
    body = UploadBody(PIECES)
    await body.trace("connection.connect_tcp.complete", {"return_value": Stream(readable=True)})
    await body.trace(f"{prefix}.start_tls.complete", {"return_value": Stream(readable=True)})
    assert [each async for each in body] == PIECES
