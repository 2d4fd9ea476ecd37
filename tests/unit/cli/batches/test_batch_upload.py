"""The body of a batch, made from a file."""

import io
import json
from pathlib import Path

import pytest

from tollhouse.cli.batches.upload import (
    BatchOptions,
    BatchUpload,
    numbered_lines,
    open_requests,
    read_pieces,
    read_upload,
)
from tollhouse.cli.errors import CommandFailed
from tollhouse.kernel.errors import StartError

LINES = "".join(
    json.dumps({"custom_id": f"c{n}", "body": {"messages": [{"content": f"Grüße {n}"}]}}) + "\n"
    for n in range(5_000)
).encode()
WHOLE = {
    "model": "acme/large",
    "requests": [{"custom_id": "a", "body": {}}, {"custom_id": "b", "body": {}}],
    "endpoint": "/v1/messages",
    "callback_url": "https://hook.example",
}


def read(text: bytes, **wishes: str) -> BatchUpload:
    return read_upload(io.BytesIO(text), "FILE", BatchOptions(**wishes))


def refused(text: bytes, **wishes: str) -> str:
    with pytest.raises(StartError) as error:
        read(text, **wishes)
    return str(error.value)


def test_lines_become_a_batch_of_the_size_that_was_said() -> None:
    upload = read(LINES, model="acme/large")
    body = b"".join(upload.pieces())
    assert len(body) == upload.size
    assert json.loads(body) == {
        "endpoint": "/v1/chat/completions",
        "model": "acme/large",
        "requests": [json.loads(line) for line in LINES.splitlines()],
    }
    assert b"".join(upload.pieces()) == body


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n\r\n  \n"])
def test_empty_lines_and_a_byte_order_mark_say_nothing(before: bytes) -> None:
    text = before + LINES.replace(b"\n", b"\r\n\n")
    upload = read(text, model="m")
    assert json.loads(b"".join(upload.pieces()))["requests"][4_999]["custom_id"] == "c4999"


def test_a_whole_batch_says_everything_itself() -> None:
    assert "leave out --model" in refused(json.dumps(WHOLE).encode(), model="acme/large")


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({**WHOLE, "requests": []}, "at least one"),
        ({"model": "m", "messages": []}, "at least one"),
        ({**WHOLE, "requests": [{"custom_id": "a"}]}, "requests[0]"),
        ({**WHOLE, "requests": [{"custom_id": "", "body": {}}]}, "requests[0].custom_id: is empty"),
        (
            {**WHOLE, "requests": [{"custom_id": "a", "body": {}}] * 2},
            "requests[1].custom_id: the same as requests[0]'s",
        ),
    ],
)
def test_a_whole_batch_is_checked_too(batch: dict[str, object], said: str) -> None:
    assert said in refused(json.dumps(batch).encode())


def test_bare_requests_on_lines_are_told_what_a_line_is() -> None:
    said = refused(b'{"model": "m", "messages": []}\n' * 2)
    assert '{"custom_id": ..., "body": {...}}' in said


def test_an_array_is_told_how_to_become_lines() -> None:
    assert "jq -c '.[]'" in refused(b' [{"custom_id": "a", "body": {}}]')


def test_a_file_that_changes_meanwhile_is_not_sent_to_its_end() -> None:
    for after in (LINES[: len(LINES) // 2 + 7], LINES + LINES, b""):
        file = io.BytesIO(LINES)
        upload = read_upload(file, "FILE", BatchOptions(model="m"))
        file.seek(0)
        file.truncate()
        file.write(after)
        with pytest.raises(CommandFailed, match="FILE changed"):
            list(upload.pieces())


def test_what_can_be_read_only_once_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    class Standard:
        buffer = Pipe(LINES)

    monkeypatch.setattr("sys.stdin", Standard)
    with open_requests("-") as file:
        assert [len(list(numbered_lines(file))) for _ in range(2)] == [5_000, 5_000]
    path = tmp_path / "lines"
    path.write_bytes(LINES)
    with open_requests(str(path)) as file:
        assert b"".join(read_pieces(file)) == LINES
    with pytest.raises(StartError, match="cannot be read"), open_requests(str(tmp_path)):
        pass
