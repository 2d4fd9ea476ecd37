"""The vault over HTTP: who may what, in which order it is refused, and what errors say."""

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.canaries import PLANTED
from tests.support.server_process import ServerProcess, start_server
from tests.support.vault_interns import VaultIntern, add_intern, delete_intern

REGIONAL = "eu.tollhouse.test"
CONFIG = f"""
server:
  max_requests_per_address_per_minute: 100000000
  regional_hostnames: ["{REGIONAL}"]
"""
SECRET = {"value": PLANTED[40], "hosts": ["api.example.com"]}
TOO_LARGE = json.dumps({"value": "x" * 1_048_576, "hosts": ["a.com"]}).encode()
LARGEST = 1_048_576


class Client:
    """A client of the vault's routes with a key."""

    def __init__(
        self, http: httpx2.Client, server: ServerProcess, key: str, host: str | None = None
    ) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {key}", **({"Host": host} if host else {})}
        self._base_url = server.base_url

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str | None = "application/json",
    ) -> httpx2.Response:
        """Send a request; a body is bytes, an iterator of them, or anything for JSON."""
        as_it_is = body is None or isinstance(body, bytes | Iterator)
        content = body if as_it_is else json.dumps(body).encode()
        url = f"{self._base_url}{path}"
        declared = {} if content_type is None else {"Content-Type": content_type}
        headers = {**self._headers, **declared}
        return self._http.request(method, url, headers=headers, content=content)


@dataclass(frozen=True)
class TwoWorkspaces:
    """A server with two workspaces and interns in each."""

    server: ServerProcess
    http: httpx2.Client
    manage: Client
    here: Client
    elsewhere: Client
    intern: VaultIntern
    other: VaultIntern
    foreign: VaultIntern

    def client(self, who: str) -> Client:
        keys = {
            "own": self.intern.key,
            "other intern": self.other.key,
            "management": self.server.management_key,
            "unknown": "sk-th-v1-unknown",
        }
        if who in keys:
            return self.with_key(keys[who])
        return {"workspace": self.here, "elsewhere": self.elsewhere}[who]

    def with_key(self, key: str, host: str | None = None) -> Client:
        return Client(self.http, self.server, key, host)

    def switch(self, **switches: bool) -> None:
        """Set a switch of the first workspace."""
        reply = self.manage("PATCH", "/workspaces/default", switches)
        assert reply.status_code == 200, reply.text


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> Generator[TwoWorkspaces]:
    folder = tmp_path_factory.mktemp("vault")
    with start_server(folder, config=CONFIG) as server, httpx2.Client(timeout=30) as http:
        manage = Client(http, server, server.management_key)
        made = manage("POST", "/workspaces", {"name": "Elsewhere", "slug": "elsewhere"}).json()
        elsewhere = made["data"]["id"]
        issued = manage("POST", "/keys", {"name": "elsewhere", "workspace_id": elsewhere}).json()
        yield TwoWorkspaces(
            server,
            http,
            manage,
            Client(http, server, server.api_key),
            Client(http, server, issued["key"]),
            add_intern(server),
            add_intern(server),
            add_intern(server, key=issued["key"]),
        )


@pytest.fixture(autouse=True)
def stored(workspaces: TwoWorkspaces) -> Generator[None]:
    """A secret of the workspace and one of the intern; resets the switches afterwards."""
    workspaces.here("PUT", "/vault/secrets/token", SECRET)
    workspaces.here("PUT", f"/vault/interns/{workspaces.intern.id}/secrets/own_token", SECRET)
    yield
    workspaces.switch(intern_programme=True, vault_writes=True)


# Who may what: every route by every caller

ROUTES: dict[str, tuple[str, str, Any, int]] = {
    "list": ("GET", "/vault/secrets", None, 200),
    "put": ("PUT", "/vault/secrets/fresh", SECRET, 200),
    "delete": ("DELETE", "/vault/secrets/token", None, 204),
    "list of intern": ("GET", "/vault/interns/{id}/secrets", None, 200),
    "put of intern": ("PUT", "/vault/interns/{id}/secrets/fresh", SECRET, 200),
    "delete of intern": ("DELETE", "/vault/interns/{id}/secrets/own_token", None, 204),
    "copy": ("POST", "/vault/interns/{id}/secrets/copy", {"names": ["token"]}, 200),
    "effective": ("GET", "/vault/interns/{id}/effective-secrets", None, 200),
}
OF_INTERN = {route for route in ROUTES if "{id}" in ROUTES[route][1]}
CALLERS = ("workspace", "elsewhere", "own", "other intern", "management", "unknown")


def expected(route: str, who: str) -> int:
    """Return the status that the contract has for a cell of the table."""
    granted = ROUTES[route][3]
    match who:
        case "workspace":
            return granted
        case "own":
            return granted if route in OF_INTERN and route != "copy" else 404
        case "elsewhere":
            if route in OF_INTERN:
                return 404
            return 404 if route == "delete" else granted
        case "other intern":
            return 404
        case _:
            return 401


@pytest.mark.parametrize("who", CALLERS)
@pytest.mark.parametrize("route", ROUTES)
def test_who_may_use_a_route(workspaces: TwoWorkspaces, route: str, who: str) -> None:
    method, path, body, _ = ROUTES[route]
    reply = workspaces.client(who)(method, path.format(id=workspaces.intern.id), body)
    assert reply.status_code == expected(route, who), reply.text


@pytest.mark.parametrize("who", ["workspace", "own"])
@pytest.mark.parametrize("route", ROUTES)
def test_outside_the_programme_every_route_is_unknown(
    workspaces: TwoWorkspaces, route: str, who: str
) -> None:
    workspaces.switch(intern_programme=False)
    method, path, body, _ = ROUTES[route]
    reply = workspaces.client(who)(method, path.format(id=workspaces.intern.id), body)
    assert reply.status_code == 404
    assert reply.json()["error"]["metadata"] == {"reason": "not_found", "retryable": False}


@pytest.mark.parametrize("who", ["workspace", "own"])
@pytest.mark.parametrize("route", ROUTES)
def test_with_writes_off_reads_go_on_and_writes_are_503(
    workspaces: TwoWorkspaces, route: str, who: str
) -> None:
    workspaces.switch(vault_writes=False)
    method, path, body, _ = ROUTES[route]
    reply = workspaces.client(who)(method, path.format(id=workspaces.intern.id), body)
    granted = expected(route, who)
    assert reply.status_code == (503 if method != "GET" and granted != 404 else granted)
    if reply.status_code == 503:
        assert reply.json()["error"]["metadata"] == {
            "reason": "writes_disabled",
            "retryable": False,
        }


def test_a_switch_of_the_account_holds_for_its_workspaces(workspaces: TwoWorkspaces) -> None:
    account = f"/accounts/{workspaces.server.announced['account_id']}"
    workspaces.manage("PATCH", account, {"intern_programme": False})
    assert workspaces.here("GET", "/vault/secrets").status_code == 404
    workspaces.manage("PATCH", account, {"intern_programme": True, "vault_writes": False})
    assert workspaces.here("PUT", "/vault/secrets/token", SECRET).status_code == 503
    workspaces.manage("PATCH", account, {"vault_writes": True})
    assert workspaces.here("PUT", "/vault/secrets/token", SECRET).status_code == 200


def test_only_an_operator_switches(workspaces: TwoWorkspaces) -> None:
    wanted = {"name": "No operator", "kind": "management"}
    key = workspaces.manage("POST", "/keys", wanted).json()["key"]
    manager = workspaces.with_key(key)
    for switches in ({"intern_programme": False}, {"vault_writes": False}):
        assert manager("PATCH", "/workspaces/default", switches).status_code == 403
        account = f"/accounts/{workspaces.server.announced['account_id']}"
        assert manager("PATCH", account, switches).status_code == 403


# The order of refusals: a request that breaks two rules hears of the first

UNKNOWN_INTERN = "0b9f1d8e-6d9a-4b3c-8a53-0a51f7f3c111"


def test_401_comes_before_403(workspaces: TwoWorkspaces) -> None:
    client = workspaces.with_key("sk-th-v1-unknown", REGIONAL)
    assert client("GET", "/vault/secrets").status_code == 401


def test_403_for_the_region_comes_before_404_for_the_programme(workspaces: TwoWorkspaces) -> None:
    workspaces.switch(intern_programme=False)
    client = workspaces.with_key(workspaces.server.api_key, REGIONAL)
    refused = client("GET", "/vault/secrets")
    assert refused.status_code == 403
    assert "metadata" not in refused.json()["error"]


def test_404_for_the_programme_comes_before_404_for_the_confinement(
    workspaces: TwoWorkspaces,
) -> None:
    # Both are the same answer, so that neither tells of the other.
    own = workspaces.client("own")
    confined = own("GET", "/vault/secrets").json()
    workspaces.switch(intern_programme=False)
    assert own("GET", "/vault/secrets").json() == confined


def test_404_for_the_confinement_comes_before_503(workspaces: TwoWorkspaces) -> None:
    workspaces.switch(vault_writes=False)
    assert workspaces.client("own")("PUT", "/vault/secrets/token", SECRET).status_code == 404


def test_503_comes_before_413(workspaces: TwoWorkspaces) -> None:
    workspaces.switch(vault_writes=False)
    assert workspaces.here("PUT", "/vault/secrets/token", TOO_LARGE).status_code == 503


def test_413_comes_before_400(workspaces: TwoWorkspaces) -> None:
    refused = workspaces.here("PUT", "/vault/secrets/NO_NAME", TOO_LARGE)
    assert refused.status_code == 413
    assert refused.json()["error"]["metadata"] == {
        "reason": "payload_too_large",
        "retryable": False,
    }


def test_400_comes_before_404_for_the_object(workspaces: TwoWorkspaces) -> None:
    path = f"/vault/interns/{UNKNOWN_INTERN}/secrets/token"
    assert workspaces.here("PUT", path, {**SECRET, "more": 1}).status_code == 400
    assert workspaces.here("PUT", path, SECRET).status_code == 404


def test_404_for_the_object_comes_before_409(workspaces: TwoWorkspaces) -> None:
    workspace = workspaces.server.announced["workspace_id"]
    old = {"workspace_id": workspace, "secrets": [{"name": "old", "value": "x"}]}
    assert workspaces.manage("POST", "/vault-imports", old).status_code == 200
    path = f"/vault/interns/{workspaces.intern.id}/secrets/copy"
    assert workspaces.here("POST", path, {"names": ["old", "missing"]}).status_code == 404
    refused = workspaces.here("POST", path, {"names": ["token", "old"]})
    assert refused.status_code == 409
    assert refused.json()["error"]["metadata"] == {"reason": "conflict", "retryable": False}


# Bodies


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_a_mebibyte_is_read_and_one_byte_more_is_refused(
    workspaces: TwoWorkspaces, *, chunked: bool
) -> None:
    for size, status in ((LARGEST, 400), (LARGEST + 1, 413)):
        body = b" " * (size - 2) + b"{}"
        content = iter([body[:1000], body[1000:]]) if chunked else body
        reply = workspaces.here("PUT", "/vault/secrets/token", content)
        assert reply.status_code == status, reply.text


@pytest.mark.parametrize("declared", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_that_does_not_say_that_it_is_json_is_a_415(
    workspaces: TwoWorkspaces, declared: str | None
) -> None:
    refused = workspaces.here("PUT", "/vault/secrets/token", SECRET, content_type=declared)
    assert refused.status_code == 415
    assert refused.json()["error"]["metadata"] == {
        "reason": "unsupported_media_type",
        "retryable": False,
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"value": NaN, "hosts": ["a.com"]}',
        {"value": "x"},
        {"hosts": ["a.com"]},
        {"value": None, "hosts": ["a.com"]},
        {"value": 1, "hosts": ["a.com"]},
        {"value": "", "hosts": ["a.com"]},
        {"value": "x", "hosts": []},
        {"value": "x", "hosts": "a.com"},
        {"value": "x", "hosts": [1]},
        {"value": "x", "hosts": ["*.a.com"]},
        {"value": "x", "hosts": None},
        {"value": "x\ny", "hosts": ["a.com"]},
        {"value": "x" * 65_537, "hosts": ["a.com"]},
        {**SECRET, "name": "token"},
    ],
)
def test_an_invalid_body_is_refused_and_never_repeated(
    workspaces: TwoWorkspaces, body: Any
) -> None:
    refused = workspaces.here("PUT", "/vault/secrets/token", body)
    assert refused.status_code == 400
    assert refused.json()["error"]["metadata"] == {"reason": "invalid_body", "retryable": False}
    assert "hunter2" not in refused.text


@pytest.mark.parametrize("names", [[], ["token", "token"], ["Bad"], ["n"] * 101, "token", [1]])
def test_names_to_copy_are_checked(workspaces: TwoWorkspaces, names: Any) -> None:
    path = f"/vault/interns/{workspaces.intern.id}/secrets/copy"
    assert workspaces.here("POST", path, {"names": names}).status_code == 400


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "offset=-1", "offset=10001", "limit=x"])
def test_pages_have_bounds(workspaces: TwoWorkspaces, query: str) -> None:
    for path in ("/vault/secrets", f"/vault/interns/{workspaces.intern.id}/effective-secrets"):
        refused = workspaces.here("GET", f"{path}?{query}")
        assert refused.status_code == 400
        assert refused.json()["error"]["metadata"]["reason"] == "invalid_body"


@pytest.mark.parametrize("intern", ["x", "0" * 36, UNKNOWN_INTERN.replace("-", "")])
def test_an_intern_is_named_by_a_uuid(workspaces: TwoWorkspaces, intern: str) -> None:
    refused = workspaces.here("GET", f"/vault/interns/{intern}/effective-secrets")
    assert refused.status_code == 400
    known = workspaces.here(
        "GET", f"/vault/interns/{workspaces.intern.id.upper()}/effective-secrets"
    )
    assert known.status_code == 200


# What an intern receives


def test_an_effective_list_tells_where_each_comes_from(workspaces: TwoWorkspaces) -> None:
    workspaces.here("PUT", "/vault/secrets/shared_token", SECRET)
    path = f"/vault/interns/{workspaces.intern.id}/effective-secrets"
    found = workspaces.here("GET", path).json()
    scopes = {each["name"]: each["scope"] for each in found["data"]}
    assert scopes["shared_token"] == "workspace"
    assert scopes["own_token"] == "intern"
    assert set(found["data"][0]) == {"name", "scope", "hosts", "fingerprint", "created_at"}


def test_an_effective_list_comes_in_pages(workspaces: TwoWorkspaces) -> None:
    path = f"/vault/interns/{workspaces.intern.id}/effective-secrets"
    whole = [each["name"] for each in workspaces.here("GET", path).json()["data"]]
    seen: list[str] = []
    more = True
    while more:
        page = workspaces.here("GET", f"{path}?limit=1&offset={len(seen)}").json()
        seen += [each["name"] for each in page["data"]]
        more = page["has_more"]
    assert seen == whole == sorted(whole)


def test_an_explained_list_has_versions_hidden_secrets_and_verdicts(
    workspaces: TwoWorkspaces,
) -> None:
    own = {"value": PLANTED[41], "hosts": ["b.com"]}
    workspaces.here("PUT", f"/vault/interns/{workspaces.other.id}/secrets/token", own)
    path = (
        f"/vault/interns/{workspaces.other.id}/effective-secrets?explain=true&host=API.example.com."
    )
    explained = {each["name"]: each for each in workspaces.here("GET", path).json()["data"]}
    token = explained["token"]
    assert (token["scope"], token["version"] >= 1) == ("intern", True)
    assert [lost["scope"] for lost in token["hidden"]] == ["workspace"]
    assert token["verdict"] == "other_host"
    assert (
        workspaces.here("GET", path.split("&", maxsplit=1)[0]).json()["data"][0]["verdict"] is None
    )


def test_an_attached_vault_that_is_gone_is_404(workspaces: TwoWorkspaces) -> None:
    lender = add_intern(workspaces.server)
    borrower = add_intern(workspaces.server, attached=lender.vault_id)
    path = f"/vault/interns/{borrower.id}/effective-secrets"
    assert workspaces.here("GET", path).status_code == 200
    delete_intern(workspaces.server, lender.id)
    refused = workspaces.here("GET", path)
    assert refused.status_code == 404
    assert refused.json()["error"]["metadata"] == {"reason": "not_found", "retryable": False}
    assert workspaces.here("GET", f"/vault/interns/{borrower.id}/secrets").status_code == 200


def test_an_operation_that_takes_too_long_is_408_and_may_be_tried_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("slow")
    script = folder / "kms.sh"
    script.write_text("#!/bin/sh\nsleep 60\n")
    script.chmod(0o755)
    config = f"vault: {{keys: command, command: ['{script}'], command_seconds: 60}}\n"
    with start_server(folder, config=config) as server, httpx2.Client(timeout=30) as http:
        reply = Client(http, server, server.api_key)("PUT", "/vault/secrets/token", SECRET)
        assert reply.status_code == 408
        assert reply.json()["error"]["metadata"] == {"reason": "timeout", "retryable": True}
