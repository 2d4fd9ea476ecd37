"""A reply that is not whole is never taken for one."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from bench import nginx
from bench.profiling import parse, render, summarise
from bench.statistic import percentile
from bench.target import Ports, Upstream
from bench.traffic import (
    CHUNKS,
    STAMP,
    Truncated,
    check_stream,
    check_whole,
    reply_body,
    request_body,
    stamps,
    stream_pieces,
)

if TYPE_CHECKING:
    from bench.processes import Child

FOLDER = Path("/tmp/x")  # noqa: S108 - never opened
UPSTREAM = Upstream(cast("Child", None), Ports(8002, 8003, 8004), FOLDER / "authority.pem")


def test_sizes_are_those_that_the_aims_speak_of() -> None:
    assert 1_900 < len(request_body("a/model", stream=False)) < 2_100
    assert 900 < len(reply_body()) < 1_100
    assert len(stream_pieces()) == CHUNKS


def test_the_upstreams_own_replies_are_whole() -> None:
    check_whole(reply_body(), priced=False)
    check_stream(b"".join(stream_pieces()), priced=False)


def test_a_cut_reply_is_found_wherever_it_is_cut() -> None:
    body = reply_body()
    for end in range(0, len(body), 7):
        with pytest.raises(Truncated):
            check_whole(body[:end], priced=False)


def test_a_stream_without_its_end_is_found() -> None:
    *pieces, end = stream_pieces()
    for kept in (0, 1, len(pieces)):
        with pytest.raises(Truncated):
            check_stream(b"".join(pieces[:kept]), priced=False)
    with pytest.raises(Truncated):
        check_stream(b"".join(pieces) + end[:-1], priced=False)
    with pytest.raises(Truncated):
        check_stream(b"".join(pieces[1:]) + end, priced=False)
    with pytest.raises(Truncated):
        check_stream(b"data: [DONE]\n\n", priced=False)


def test_a_gateway_has_to_say_the_cost() -> None:
    with pytest.raises(Truncated, match="cost"):
        check_whole(reply_body(), priced=True)
    with pytest.raises(Truncated, match="cost"):
        check_stream(b"".join(stream_pieces()), priced=True)


def test_each_chunk_says_when_it_was_written() -> None:
    stream = b"".join(piece.replace(STAMP, b"%019d" % 42) for piece in stream_pieces())
    assert stamps(stream) == [42] * (CHUNKS + 1)
    assert stamps(reply_body()) == [0]


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 50) == 51.0
    assert percentile(values, 99) == 100.0
    assert percentile([], 50) == 0.0


def test_nginx_relays_over_kept_connections_and_a_stream_unbuffered() -> None:
    text = nginx.config(FOLDER, 8001, UPSTREAM, root=False)
    assert "user" not in text.split("events")[0]
    for needed in (
        "worker_processes 1;",
        "listen 127.0.0.1:8001",
        "server 127.0.0.1:8002;",
        "proxy_http_version 1.1;",
        'proxy_set_header Connection "";',
        "proxy_buffering off;",
        "keepalive 256;",
    ):
        assert needed in text
    assert nginx.config(FOLDER, 1, UPSTREAM, root=True).startswith("user root;\n")


def test_nginx_verifies_the_upstreams_certificate() -> None:
    text = nginx.config(FOLDER, 8001, UPSTREAM, root=False)
    assert "server 127.0.0.1:8003;" in text
    assert "proxy_ssl_verify on;" in text
    assert f"proxy_ssl_trusted_certificate {UPSTREAM.authority};" in text


def test_a_profile_is_summed_up_by_function() -> None:
    main = "thread (0x1): MainThread;Runner.run (asyncio/runners.py:1)"
    lines = [
        f"{main};tell (x.py:1);read (a/b/c.py:5) 6",
        f"{main};tell (x.py:7);read (a/b/c.py:9) 2",
        f"{main} 2",
        "thread (0x2): settler_0;work (c/d/sqlite.py:3) 7",
        "thread (0x2): settler_0;_worker (concurrent/futures/thread.py:81) 1000",
        "not a stack",
    ]
    found = summarise(parse(lines), main=200.0, others=50.0)
    assert found.threads == pytest.approx({"MainThread": 200.0, "settler_0": 50.0})
    assert found.own == pytest.approx(
        {
            "read (b/c.py)": 160.0,
            "Runner.run (asyncio/runners.py)": 40.0,
            "work (d/sqlite.py)": 50.0,
        }
    )
    assert found.inclusive["tell (x.py)"] == pytest.approx(160.0)
    text = render(found)
    line = next(line for line in text.splitlines() if line.startswith("read (b/c.py)"))
    assert line.split()[2:] == ["160.0"]
