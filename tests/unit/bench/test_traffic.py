"""What all formats share, the yardstick's configuration, and how a profile is read."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from bench import nginx
from bench.formats import chat
from bench.profiling import parse, render, summarise
from bench.statistic import percentile
from bench.target import Ports, Upstream
from bench.traffic import (
    CHUNKS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    STAMP,
    Event,
    Truncated,
    check_usage,
    read_events,
    stamps,
)

if TYPE_CHECKING:
    from bench.processes import Child

FOLDER = Path("/tmp/x")  # noqa: S108 - never opened
UPSTREAM = Upstream(cast("Child", None), Ports(8002, 8003, 8004), FOLDER / "authority.pem")


def test_each_chunk_of_chat_says_when_it_was_written() -> None:
    stream = b"".join(piece.replace(STAMP, b"%019d" % 42) for piece in chat.stream_pieces())
    assert stamps(stream) == [42] * (CHUNKS + 1)
    assert stamps(chat.reply_body()) == [0]


def test_events_are_read_without_comments() -> None:
    body = b": waiting\n\nevent: ping\ndata: {}\n\ndata: 1\n\n"
    assert read_events(body) == [Event("ping", b"{}"), Event("", b"1")]


def test_a_stream_that_ends_within_an_event_is_found() -> None:
    with pytest.raises(Truncated):
        read_events(b"data: 1\n\ndata: 2\n")


def test_the_cost_has_to_be_the_one_that_the_prices_make() -> None:
    check_usage(INPUT_TOKENS, OUTPUT_TOKENS, 0.00076, priced=True)
    for cost in (None, 0.0, 0.00075):
        with pytest.raises(Truncated, match="cost"):
            check_usage(INPUT_TOKENS, OUTPUT_TOKENS, cost, priced=True)


def test_the_tokens_have_to_be_the_upstreams() -> None:
    for given, made in ((INPUT_TOKENS, 1), (0, OUTPUT_TOKENS)):
        with pytest.raises(Truncated, match="usage"):
            check_usage(given, made, None, priced=False)


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
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
