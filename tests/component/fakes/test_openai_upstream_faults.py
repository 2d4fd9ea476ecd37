"""The OpenAI stub fails on request, keeps request statistics, and conforms to HTTP."""

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest
import trustme

from tests.component.fakes.conftest import Caller, until
from tests.support.providers.openai_behaviours import BEHAVIOURS
from tests.support.providers.openai_upstream import OpenAIUpstream, start_openai_upstream

# -------------------------------------------------------------------------------------- failures


async def test_garbage_is_invalid_json_with_200(caller: Caller) -> None:
    answer = await caller.ask("garbage")
    assert (answer.status, answer.body) == (200, b"this is not JSON")


async def test_html_502_is_html(caller: Caller) -> None:
    answer = await caller.ask("html-502")
    assert (answer.status, answer.headers["content-type"]) == (502, "text/html")


async def test_error_in_stream_ends_cleanly_without_done(caller: Caller) -> None:
    answer = await caller.stream("error-in-stream")
    assert answer.ended
    assert answer.events[-1]["error"]["type"] == "server_error"
    assert len(answer.events) == 4


async def test_duplicate_done_has_two(caller: Caller) -> None:
    assert (await caller.stream("duplicate-done")).events[-2:] == ["[DONE]", "[DONE]"]


async def test_no_done_ends_after_the_finish_reason(caller: Caller) -> None:
    answer = await caller.stream("no-done")
    assert answer.ended
    assert answer.events[-1]["choices"][0]["finish_reason"] == "stop"


async def test_no_finish_ends_after_a_piece(caller: Caller) -> None:
    answer = await caller.stream("no-finish")
    assert answer.ended
    assert answer.text == "one two three"
    assert b'"finish_reason":"' not in answer.body


async def test_a_huge_event_is_one_event(caller: Caller) -> None:
    answer = await caller.stream("huge-event:300000")
    assert max(map(len, answer.body.split(b"\n\n"))) > 300_000


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size", [0, 1, 100, 250])
@pytest.mark.parametrize("how", ["eof", "short"])
async def test_cut_ends_after_the_given_number_of_bytes(
    caller: Caller, how: str, size: int, *, stream: bool
) -> None:
    answer = await caller.ask(f"cut:{size}:{how}", stream=stream)
    assert ("content-length" in answer.headers) == (how == "short")
    assert (len(answer.body), answer.ended) == (size, False)
    assert await caller.is_at_end()


@pytest.mark.parametrize("stream", [False, True])
async def test_cut_may_reset_the_connection(caller: Caller, *, stream: bool) -> None:
    caller.send("cut:100:rst", stream=stream)
    await caller.reader.readuntil(b"chatcmpl")
    with pytest.raises(ConnectionResetError):
        await caller.read_to_end()


async def test_hang_never_answers(openai: OpenAIUpstream, caller: Caller) -> None:
    caller.send("hang")
    await until(lambda: openai.seen.open)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(caller.reader.read(1), 0.05)
    assert openai.seen.open == 1


# --------------------------------------------------------------------------------- what was seen


async def test_requests_and_connections_are_counted(openai: OpenAIUpstream, caller: Caller) -> None:
    for _ in range(3):
        await caller.ask("echo")
    assert (openai.seen.requests, openai.seen.connections, openai.seen.open) == (3, 1, 0)
    assert openai.seen.cancelled == []


async def test_the_last_request_is_remembered(openai: OpenAIUpstream, caller: Caller) -> None:
    await caller.ask("echo", "remember me", temperature=0.5)
    assert (openai.seen.method, openai.seen.path) == ("POST", "/v1/chat/completions")
    assert openai.seen.headers["host"] == "x"
    assert openai.seen.body["messages"] == [{"role": "user", "content": "remember me"}]
    assert openai.seen.body["temperature"] == 0.5


@pytest.mark.parametrize("model", ["hang", "slow-chunks:1000", "slow-head:1000"])
async def test_a_request_that_its_client_gave_up_is_seen_as_cancelled(
    openai: OpenAIUpstream, caller: Caller, model: str
) -> None:
    caller.send(model, stream=True)
    await until(lambda: openai.seen.open)
    before = time.monotonic()
    caller.writer.close()
    await until(lambda: openai.seen.cancelled)
    assert before <= openai.seen.cancelled[0] <= time.monotonic()
    assert openai.seen.open == 0


async def test_an_upload_that_its_client_gave_up_is_seen_as_cancelled(
    openai: OpenAIUpstream, caller: Caller
) -> None:
    caller.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf")
    await until(lambda: openai.seen.open)
    caller.writer.close()
    await until(lambda: openai.seen.cancelled)


async def test_a_connection_closed_after_its_reply_is_not_seen_as_cancelled(
    openai: OpenAIUpstream, caller: Caller
) -> None:
    await caller.stream("echo")
    caller.writer.close()
    await caller.writer.wait_closed()
    await asyncio.sleep(0.01)
    assert openai.seen.cancelled == []


async def test_request_statistics_can_be_read_and_reset(caller: Caller) -> None:
    await caller.ask("echo")
    caller.get("/_seen")
    seen = (await caller.answer()).json
    assert (seen["requests"], seen["open"], seen["cancelled"]) == (1, 0, [])
    assert seen["body"]["model"] == "echo"
    assert seen["headers"]["host"] == "x"
    assert seen["monotonic"] <= time.monotonic()
    caller.get("/_reset", "POST")
    assert (await caller.answer()).status == 200
    caller.get("/_seen")
    assert (await caller.answer()).json["requests"] == 0


# ------------------------------------------------------------------------------------------- http


async def test_pipelined_requests_are_answered_in_order(caller: Caller) -> None:
    caller.send("slow-head:0.02", "first")
    caller.send("echo", "second")
    said = [(await caller.answer()).json["choices"][0]["message"]["content"] for _ in range(2)]
    assert said == ["first", "second"]


async def test_a_request_may_come_byte_by_byte(caller: Caller) -> None:
    body = b'{"model":"echo","messages":[{"role":"user","content":"slow"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    for byte in head + body:
        caller.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await caller.answer()).status == 200


async def test_a_request_may_be_chunked(caller: Caller) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [b'{"model":"echo",', b'"messages":[{"role":"user","content":"x"}]}', b""]
    caller.writer.write(head + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces))
    assert (await caller.answer()).status == 200


async def test_a_client_that_expects_100_gets_it(caller: Caller) -> None:
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    caller.writer.write(head)
    assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    caller.writer.write(b"{}")
    assert (await caller.answer()).status == 400


async def test_connection_close_is_honoured(caller: Caller) -> None:
    caller.writer.write(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert (await caller.answer()).status == 200
    assert await caller.is_at_end()


async def test_invalid_http_is_rejected(caller: Caller) -> None:
    caller.writer.write(b"garbage\r\n\r\n")
    assert (await caller.answer()).status == 400
    assert await caller.is_at_end()


async def test_tls_is_served_on_request() -> None:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with start_openai_upstream(ssl_context=server) as openai:
        assert openai.base_url == f"https://127.0.0.1:{openai.port}/v1"
        caller = Caller(*await asyncio.open_connection("127.0.0.1", openai.port, ssl=client))
        assert (await caller.ask("echo")).status == 200
        caller.writer.close()


async def test_a_server_that_ends_closes_its_connections() -> None:
    async with start_openai_upstream() as openai:
        reader, writer = await asyncio.open_connection("127.0.0.1", openai.port)
        caller = Caller(reader, writer)
        caller.send("hang")
        await until(lambda: openai.seen.open)
    assert await caller.is_at_end()
    writer.close()


def test_every_model_is_documented() -> None:
    import tests.support.providers.openai_upstream as module  # noqa: PLC0415 - for its docstring only

    documented = str(module.__doc__)
    assert [name for name in BEHAVIOURS if name not in documented] == []


def test_the_program_prints_its_port_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "tests.support.providers.openai_upstream", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        port = json.loads(program.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=10) == 0
        assert program.stdout.read() == b""
        assert program.stderr.read() == b""
