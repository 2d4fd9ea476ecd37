"""Values of secrets are found nowhere: not in a file, a log, a metric or an answer."""

import base64
import gzip
import json
import sqlite3
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.support.canaries import PLANTED, Scanner, new_canary
from tests.support.server_process import ServerProcess, start_server
from tests.support.vault_interns import add_intern

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


CANARIES = PLANTED[:20] + PLANTED[43:]
OTHERS = [new_canary(at, "proof") for at in range(20)]
CONFIG = "logging: {level: debug}\n"
HOSTS = ["api.example.com"]

ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda raw: raw,
    "JSON": lambda raw: json.dumps(raw.decode()).encode(),
    "URL": lambda raw: quote(raw, safe="").encode(),
    "hex": lambda raw: raw.hex().encode(),
    "HEX": lambda raw: raw.hex().upper().encode(),
    "base64": base64.b64encode,
    "base64 behind one": lambda raw: base64.b64encode(b"x" + raw + b"yz"),
    "base64 behind two": lambda raw: base64.b64encode(b"xy" + raw + b"z"),
    "base64 for URLs": lambda raw: base64.urlsafe_b64encode(b"xyz" + raw),
    "gzip": lambda raw: gzip.compress(b"before " + raw),
    "zlib": lambda raw: zlib.compress(b"before " + raw),
    "zstd": lambda raw: zstd.compress(b"before " + raw),
    "base64 in gzip": lambda raw: gzip.compress(base64.b64encode(raw)),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_scanner_finds_a_leak_in_each_encoding(tmp_path: Path, encoding: str) -> None:
    leak = ENCODINGS[encoding](OTHERS[7].encode())
    (tmp_path / "log.jsonl").write_bytes(b'{"event": "' + leak + b'"}\n')
    expected = {("log.jsonl", OTHERS[7])}
    assert Scanner(OTHERS).in_folder(tmp_path) == expected
    assert Scanner(OTHERS).in_bytes("log.jsonl", leak * 2) == expected


@pytest.mark.parametrize("cell", [OTHERS[3], OTHERS[3].encode()], ids=["text", "blob"])
def test_the_scanner_finds_a_leak_in_a_row_that_is_in_pieces(
    tmp_path: Path, cell: str | bytes
) -> None:
    path = tmp_path / "tollhouse.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE secrets (value)")
        filler = "." * 4_070 if isinstance(cell, str) else b"." * 4_070
        for at in range(40):
            # Somewhere among these the value lies across the end of a page.
            connection.execute("INSERT INTO secrets VALUES (?)", (filler[at:] + cell + filler,))
    assert ("tollhouse.db, a cell", OTHERS[3]) in Scanner(OTHERS).in_folder(tmp_path)


def test_the_scanner_finds_nothing_in_clean_files(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"cnry- \x1f\x8b \x78\x9c \x28\xb5\x2f\xfd" * 100)
    assert Scanner(CANARIES).in_folder(tmp_path) == set()


class Sender:
    """Sends requests, and records the responses."""

    def __init__(self, server: ServerProcess, http: httpx2.Client) -> None:
        self._server = server
        self._http = http
        self.received = bytearray()

    def __call__(self, method: str, path: str, body: Any = None, key: str | None = None) -> int:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {
            "Authorization": f"Bearer {key or self._server.api_key}",
            "Content-Type": "application/json",
        }
        url = f"{self._server.base_url}{path}"
        reply = self._http.request(method, url, headers=headers, content=content)
        self.received += repr(reply.headers).encode() + reply.content
        return reply.status_code


def test_twenty_secrets_leave_no_trace_of_their_values(tmp_path: Path) -> None:
    with start_server(tmp_path, config=CONFIG) as server, httpx2.Client(timeout=30) as http:
        send = Sender(server, http)
        intern = add_intern(server)
        use(send, server, intern.id, intern.key)
        metrics = http.get(f"{server.origin}/metrics")
        told = server.stderr_text().encode()
    scanner = Scanner(CANARIES)
    found = scanner.in_folder(tmp_path) | scanner.in_bytes("replies", bytes(send.received))
    found |= scanner.in_bytes("log", told) | scanner.in_bytes("metrics", metrics.content)
    assert found == set()


def use(send: Sender, server: ServerProcess, intern: str, own_key: str) -> None:
    """Use many values in every request that takes them, also in refused ones."""
    shared, own = "/vault/secrets", f"/vault/interns/{intern}/secrets"
    for at in (*range(8), *range(20, 27)):
        new = {"value": CANARIES[at], "hosts": HOSTS}
        assert send("PUT", f"{shared}/token_{at}", new) == 200
    assert send("PUT", f"{shared}/token_0", {"value": CANARIES[8], "hosts": HOSTS}) == 200
    assert send("PUT", f"{own}/mine", {"value": CANARIES[9], "hosts": HOSTS}, own_key) == 200
    assert send("POST", f"{own}/copy", {"names": ["token_1", "token_2"]}) == 200
    old = [{"name": f"old_{at}", "value": CANARIES[at]} for at in (10, 11)]
    imported = {"workspace_id": server.announced["workspace_id"], "secrets": old}
    assert send("POST", "/vault-imports", imported, server.management_key) == 200
    assert send("POST", "/vault-keys/rotate", {}, server.management_key) == 200
    refused: list[tuple[str, str, Any]] = [
        ("PUT", f"{shared}/token", {"value": CANARIES[12], "hosts": ["*"]}),
        ("PUT", f"{shared}/token", {"value": [CANARIES[12]], "hosts": HOSTS}),
        ("PUT", f"{shared}/token", {"value": CANARIES[13] * 3_000, "hosts": HOSTS}),
        ("PUT", f"{shared}/token", {"value": CANARIES[13] + "\n", "hosts": HOSTS}),
        ("PUT", f"{shared}/token", f'{{"value": "{CANARIES[14]}'.encode()),
        ("PUT", f"{shared}/token", b'"' + CANARIES[14].encode() + b'" \xff'),
        ("PUT", f"{shared}/token", json.dumps(CANARIES[15]).encode()),
        ("PUT", f"{shared}/token", b" " * 425_001 + CANARIES[15].encode()),
        ("PUT", f"{own}/token", {"value": CANARIES[16]}),
        ("POST", f"{own}/copy", {"names": ["token_1"], "value": CANARIES[17]}),
        ("POST", f"{own}/copy", {"names": [CANARIES[17]]}),
    ]
    for method, path, body in refused:
        assert 400 <= send(method, path, body) < 500
    wrong = {"workspace_id": "default", "secrets": [{"name": "No", "value": CANARIES[18]}]}
    assert send("POST", "/vault-imports", wrong, server.management_key) == 400
    wrong = {"workspace_id": "default", "secrets": [{"name": "no", "value": {"x": CANARIES[19]}}]}
    assert send("POST", "/vault-imports", wrong, server.management_key) == 400
    for path in (shared, own, f"/vault/interns/{intern}/effective-secrets?explain=true"):
        assert send("GET", path) == 200
    assert send("GET", "/audit", key=server.management_key) == 200
    assert send("DELETE", f"{shared}/token_3") == 204
