"""Concurrent requests for interns, and operations that affect another intern."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.egress_hosts import BOUND
from tests.support.canaries import PLANTED
from tests.support.intern_client import InternClient
from tests.support.server_process import ServerProcess, start_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import httpx2

    from tests.acceptance.egress_hosts import EgressHosts

sandboxed = pytest.mark.sandbox
VALUE = PLANTED[49]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts
) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("o"), config=hosts.config()) as server:
        yield server


def at_once(interns: InternClient, *requests: tuple[str, str, Any]) -> list[httpx2.Response]:
    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(lambda each: interns.request(*each), requests))


@sandboxed
def test_of_two_creations_of_one_name_at_once_one_is_refused(interns: InternClient) -> None:
    replies = at_once(
        interns,
        *(
            ("POST", "/interns", {"name": "ada", "description": text, "provision": True})
            for text in ("one", "other")
        ),
    )
    assert sorted(reply.status_code for reply in replies) == [201, 409]
    assert len(interns.request("GET", "/interns").json()["data"]) == 1


@sandboxed
def test_of_two_same_creations_at_once_there_is_one_intern(interns: InternClient) -> None:
    body = {"name": "ada", "provision": True}
    replies = at_once(interns, *[("POST", "/interns", body)] * 2)
    assert sorted(reply.status_code for reply in replies) == [200, 201]
    assert len({reply.json()["id"] for reply in replies}) == 1


@sandboxed
@pytest.mark.parametrize("operation", ["provision", "suspend"])
def test_an_operation_on_an_intern_that_boots_is_refused_as_retryable(
    interns: InternClient, operation: str
) -> None:
    intern = interns.create(provision=True)
    reply = interns.request("POST", f"/interns/{intern}/{operation}")
    assert reply.status_code == 409
    assert reply.json()["error"]["metadata"] == {"reason": "intern_busy", "retryable": True}
    found = interns.until(intern)
    assert found is not None
    assert found["status"] == "running"


@sandboxed
def test_an_attached_vault_gives_nothing_once_its_owner_is_deleted(
    interns: InternClient, hosts: EgressHosts
) -> None:
    owner = interns.create("ada")
    secret = f"/vault/interns/{owner}/secrets/token"
    assert interns.request("PUT", secret, {"value": VALUE, "hosts": [BOUND]}).is_success
    owned = interns.get(owner)
    assert owned is not None
    borrower = interns.run("bob", vault_id=owned["vault_id"])
    ask = f"curl -sS -H 'Authorization: Bearer {{{{secret:token}}}}' {hosts.url(BOUND)}"
    interns.script_output("bob", ask)
    assert hosts.authorizations(BOUND) == [f"Bearer {VALUE}"]
    interns.request("DELETE", f"/interns/{owner}")
    interns.until(owner, {None})
    interns.run_script("bob", ask)
    assert f"Bearer {VALUE}" not in hosts.authorizations(BOUND)[1:]
    assert interns.request("GET", f"/vault/interns/{borrower}/effective-secrets").status_code == 404
    assert interns.healthy(borrower)


def test_without_bubblewrap_an_intern_says_what_to_install(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    with start_server(tmp_path, env={"PATH": str(programs)}) as server:
        interns = InternClient(server)
        found = interns.until(interns.create(provision=True))
        assert found is not None
        assert found["status"] == "failed"
        assert "apt-get install bubblewrap" in found["last_failure_message"]
