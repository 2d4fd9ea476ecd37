"""An operation that affects another intern, and a machine that cannot run any."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.acceptance.egress_hosts import BOUND, EgressHosts
from tests.support.canaries import PLANTED
from tests.support.intern_client import InternClient
from tests.support.server_process import ServerProcess, start_server

sandboxed = pytest.mark.sandbox
VALUE = PLANTED[49]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts
) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("o"), config=hosts.config()) as server:
        yield server


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
