"""Recorded replies are parsed by the libraries of their formats, and faults are found."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.reply_tee import FOLDER
from tests.support.reply_validation import rejected_replies
from tests.support.server_process import start_server

pytestmark = pytest.mark.contract

CHUNK = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "b", "choices": []}
MESSAGE: dict[str, Any] = {
    "id": "a",
    "type": "message",
    "role": "assistant",
    "model": "b",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
EMBEDDING = {"object": "embedding", "embedding": [0.5], "index": 0}
VECTORS = {"object": "list", "model": "b", "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def block_start(**fields: Any) -> dict[str, Any]:
    block = {"type": "text", "text": "", **fields}
    return {"type": "content_block_start", "index": 0, "content_block": block}


def whole(path: str, reply: dict[str, Any]) -> str:
    return json.dumps({"path": path, "streams": False, "body": json.dumps(reply)}) + "\n"


def streamed(path: str, *events: dict[str, Any]) -> str:
    body = ": hold on\n\n" + "".join(f"data: {json.dumps(each)}\n\n" for each in events)
    return json.dumps({"path": path, "streams": True, "body": f"{body}data: [DO"}) + "\n"


def test_a_null_where_clients_take_none_is_found(tmp_path: Path) -> None:
    """Beside replies that are well, and one that a process could not finish to write."""
    cited = {"type": "text", "text": "Hello", "citations": None}
    ended = {"type": "response.completed", "sequence_number": 1, "response": None}
    tmp_path.joinpath("1").write_text(
        whole("messages", MESSAGE)
        + streamed("messages", block_start())
        + streamed("chat/completions", CHUNK)
        + whole("embeddings", {**VECTORS, "data": [EMBEDDING]})
    )
    tmp_path.joinpath("2").write_text(
        whole("messages", {**MESSAGE, "content": [cited]})
        + streamed("messages", block_start(), block_start(caller=None))
        + streamed("chat/completions", CHUNK, {**CHUNK, "system_fingerprint": None})
        + streamed("responses", ended)
        + whole("embeddings", {**VECTORS, "data": [{**EMBEDDING, "index": None}]})
        + whole("messages", {})[:20]
    )
    faults = [(each.split(": ")[0:2], each) for each in rejected_replies(tmp_path)]
    assert [found for found, _ in faults] == [
        ["anthropic", "messages"],
        ["anthropic", "messages"],
        ["openai", "responses"],
        ["openai", "embeddings"],
        ["openrouter", "chat/completions"],
    ]
    assert "null in a block's ['caller']" in faults[1][1]


def test_a_server_of_the_tests_keeps_what_it_replies(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with start_server(tmp_path, env={FOLDER: str(kept)}) as server:
        for stream in (False, True, True):
            httpx2.post(
                f"{server.base_url}/chat/completions",
                headers=server.authorization,
                json={
                    "model": "simulated/echo",
                    "messages": [{"role": "user", "content": "one"}],
                    "stream": stream,
                },
            ).raise_for_status()
    (file,) = kept.iterdir()
    one, other = map(json.loads, file.read_text().splitlines())
    assert (one["path"], one["streams"]) == ("chat/completions", False)
    assert json.loads(one["body"])["choices"][0]["message"]["content"]
    assert (other["path"], other["streams"]) == ("chat/completions", True)
    assert other["body"].endswith("data: [DONE]\n\n")
