"""Interns over HTTP: who may what, in which order it is refused, and what errors say.

Nothing runs here: states are written into the database, under a lease that keeps others away.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2
import pytest

from tests.support import backdoor
from tests.support.backdoor import new_own_key
from tests.support.intern_operation_table import OPERATION_CASES
from tests.support.server_process import ServerProcess, start_server

REGIONAL = "eu.tollhouse.test"
CONFIG = f"""
server:
  max_requests_per_address_per_minute: 100000000
  regional_hostnames: ["{REGIONAL}"]
interns:
  max_per_creator: 100000
"""
LARGEST = 1_048_576
UNKNOWN = "99999999-0000-4000-8000-000000000009"
FAR_AWAY = 1 << 42
FIELDS = {
    *("id", "name", "description", "instructions", "model", "status", "hostname", "progress"),
    *("last_failure_message", "vault_id", "attached_vault_id", "workspace_id"),
    *("created_at", "updated_at"),
}


class Client:
    """A client of the interns' routes with a key."""

    def __init__(
        self, http: httpx2.Client, server: ServerProcess, key: str, host: str = ""
    ) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {key}", **({"Host": host} if host else {})}
        self._base_url = server.base_url

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Send a request; a body is bytes, an iterator of them, or anything for JSON."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes | Iterator):
            body = json.dumps(body).encode()
            given.setdefault("content-type", "application/json")
        url = f"{self._base_url}{path}"
        return self._http.request(method, url, headers={**self._headers, **given}, content=body)


@dataclass(frozen=True)
class TwoWorkspaces:
    """A server with two workspaces."""

    server: ServerProcess
    http: httpx2.Client
    manage: Client
    here: Client
    elsewhere: Client
    numbers: count[int]

    def client(self, key: str, host: str = "") -> Client:
        return Client(self.http, self.server, key, host)

    def name(self) -> str:
        return f"intern-{next(self.numbers)}"

    def make(self, client: Client | None = None, **body: object) -> dict[str, Any]:
        reply = (client or self.here)("POST", "/interns", {"name": self.name(), **body})
        assert reply.status_code == 201, reply.text
        return reply.json()

    def put_into(self, intern: dict[str, Any], state: tuple[str, str]) -> None:
        backdoor.execute(
            self.server,
            "UPDATE interns SET status = ?, desired = ?, lease_until = ?, step = NULL WHERE id = ?",
            *(*state, FAR_AWAY, intern["id"]),
        )

    def set(self, intern: dict[str, Any], **facts: object) -> None:
        columns = ", ".join(f"{name} = ?" for name in facts)
        statement = f"UPDATE interns SET {columns} WHERE id = ?"  # noqa: S608 - our own names
        backdoor.execute(self.server, statement, *facts.values(), intern["id"])

    def own_key(self, intern: dict[str, Any]) -> str:
        """Create an intern's own key, as its boot does."""
        return new_own_key(self.server, intern["workspace_id"], intern["id"])


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> Generator[TwoWorkspaces]:
    folder = tmp_path_factory.mktemp("interns")
    with start_server(folder, config=CONFIG) as server, httpx2.Client(timeout=30) as http:
        manage = Client(http, server, server.management_key)
        made = manage("POST", "/workspaces", {"name": "Elsewhere", "slug": "elsewhere"}).json()
        wanted = {"name": "elsewhere", "workspace_id": made["data"]["id"]}
        issued = manage("POST", "/keys", wanted).json()
        yield TwoWorkspaces(
            server,
            http,
            manage,
            Client(http, server, server.api_key),
            Client(http, server, issued["key"]),
            count(1),
        )


@pytest.fixture
def intern(workspaces: TwoWorkspaces) -> dict[str, Any]:
    return workspaces.make()


def refused(reply: httpx2.Response, status: int, reason: str, *, retryable: bool = False) -> str:
    """Assert an error of the intern life cycle; return its message."""
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"code", "message", "metadata"}
    assert error["code"] == status
    assert error["metadata"] == {"reason": reason, "retryable": retryable}
    message: str = error["message"]
    return message


# What there is


def test_an_intern_has_every_field(workspaces: TwoWorkspaces) -> None:
    made = workspaces.make(description="counts", instructions="be kind")
    assert set(made) == FIELDS
    assert made["status"] == "queued"
    assert (made["description"], made["instructions"]) == ("counts", "be kind")
    nothing = ("model", "hostname", "progress", "last_failure_message", "attached_vault_id")
    assert [made[name] for name in nothing] == [None] * 5
    assert made["workspace_id"] == workspaces.server.announced["workspace_id"]
    assert workspaces.here("GET", f"/interns/{made['id']}").json() == made


def test_the_same_creation_is_answered_again(workspaces: TwoWorkspaces) -> None:
    body = {"name": workspaces.name(), "description": None}
    first = workspaces.here("POST", "/interns", body)
    second = workspaces.here("POST", "/interns", {"name": body["name"], "provision": False})
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    renamed = workspaces.name()
    path = f"/interns/{first.json()['id']}"
    assert workspaces.here("PATCH", path, {"name": renamed}).status_code == 200
    third = workspaces.here("POST", "/interns", body)
    assert (third.status_code, third.json()["id"]) == (200, first.json()["id"])
    assert third.json()["name"] == renamed
    other = workspaces.here("POST", "/interns", body, Idempotency_Key=f"again-{renamed}")
    assert (other.status_code, other.json()["name"]) == (201, body["name"])


def test_an_idempotency_key_means_one_creation(workspaces: TwoWorkspaces) -> None:
    body = {"name": workspaces.name()}
    key = {"Idempotency_Key": f"key-{body['name']}"}
    first = workspaces.here("POST", "/interns", body, **key)
    second = workspaces.here("POST", "/interns", body, **key)
    assert (first.status_code, second.status_code) == (201, 200)
    other = workspaces.here("POST", "/interns", {"name": workspaces.name()}, **key)
    refused(other, 409, "idempotency_key_reused")


def test_a_taken_name_is_refused(workspaces: TwoWorkspaces, intern: dict[str, Any]) -> None:
    again = workspaces.here("POST", "/interns", {"name": intern["name"], "description": "another"})
    refused(again, 409, "name_taken")
    other = workspaces.make()
    changed = workspaces.here("PATCH", f"/interns/{other['id']}", {"name": intern["name"]})
    refused(changed, 409, "name_taken")
    same = workspaces.here("PATCH", f"/interns/{other['id']}", {"name": other["name"]})
    assert same.status_code == 200
    assert workspaces.make(workspaces.elsewhere, name=intern["name"])["name"] == intern["name"]


def test_a_vault_is_borrowed(workspaces: TwoWorkspaces, intern: dict[str, Any]) -> None:
    assert workspaces.make(vault_id=intern["vault_id"])["attached_vault_id"] == intern["vault_id"]


def test_a_vault_of_elsewhere_is_not_borrowed(workspaces: TwoWorkspaces) -> None:
    foreign = workspaces.make(workspaces.elsewhere)
    for vault_id in (foreign["vault_id"], UNKNOWN):
        body = {"name": workspaces.name(), "vault_id": vault_id}
        refused(workspaces.here("POST", "/interns", body), 409, "vault_not_attachable")


def test_a_patch_changes_only_the_fields_that_it_names(
    workspaces: TwoWorkspaces, intern: dict[str, Any]
) -> None:
    body = {"description": "new", "instructions": "other", "model": "a/b:free"}
    path = f"/interns/{intern['id']}"
    workspaces.set(intern, updated_at=0)
    changed = workspaces.here("PATCH", path, body).json()
    assert {name: changed[name] for name in body} == body
    assert changed["updated_at"] >= intern["created_at"] == changed["created_at"]
    cleared = workspaces.here("PATCH", path, {"description": None, "model": None}).json()
    assert (cleared["description"], cleared["model"]) == (None, None)
    assert cleared["instructions"] == "other"


def test_a_list_comes_in_pages(workspaces: TwoWorkspaces) -> None:
    made = [workspaces.make(workspaces.elsewhere)["id"] for _ in range(3)]
    first = workspaces.elsewhere("GET", "/interns?limit=2").json()
    assert [each["id"] for each in first["data"]] == made[:0:-1]
    assert first["has_more"] is True
    path = f"/interns?limit=2&starting_after={first['next_cursor']}"
    second = workspaces.elsewhere("GET", path).json()
    assert second["data"][0]["id"] == made[0]


def test_the_last_page_has_no_cursor(workspaces: TwoWorkspaces, intern: dict[str, Any]) -> None:
    del intern
    page = workspaces.here("GET", "/interns?limit=500").json()
    assert set(page) == {"data", "has_more"}
    assert page["has_more"] is False


def test_a_list_is_filtered_by_statuses(workspaces: TwoWorkspaces) -> None:
    stopped = workspaces.make()
    workspaces.put_into(stopped, ("stopped", "idle"))
    page = workspaces.here("GET", "/interns?limit=500&status=stopped%2Cfailed").json()
    assert stopped["id"] in [each["id"] for each in page["data"]]
    assert {each["status"] for each in page["data"]} <= {"stopped", "failed"}
    # The status that published clients send.
    assert workspaces.here("GET", "/interns?status=awaiting_slack_install").status_code == 200


def test_a_boot_shows_its_step(workspaces: TwoWorkspaces, intern: dict[str, Any]) -> None:
    workspaces.put_into(intern, ("provisioning", "running"))
    workspaces.set(intern, step=2)
    assert workspaces.here("GET", f"/interns/{intern['id']}").json()["progress"] == {
        "step_label": "Opening the way out",
        "step_number": 2,
        "total_steps": 4,
    }


# What a state allows

PROMPT = {"stream": True, "messages": [{"role": "user", "content": "Hello"}]}
REASONS = {"daemon": "intern_not_running", "chat": "intern_not_ready"}
ASKED: dict[str, tuple[str, str, Any]] = {
    "provision": ("POST", "/provision", None),
    "suspend": ("POST", "/suspend", None),
    "delete": ("DELETE", "", None),
    "patch": ("PATCH", "", {"description": "changed"}),
    "daemon": ("GET", "/daemon", None),
    "chat": ("POST", "/chat/completions", PROMPT),
}
REFUSED = {name: cell for name, cell in OPERATION_CASES.items() if cell[2] != "ok"}


@pytest.mark.parametrize(("operation", "state", "answer"), REFUSED.values(), ids=REFUSED)
def test_a_state_refuses_an_operation(
    workspaces: TwoWorkspaces,
    intern: dict[str, Any],
    operation: str,
    state: tuple[str, str],
    answer: str,
) -> None:
    workspaces.put_into(intern, state)
    method, path, body = ASKED[operation]
    reply = workspaces.here(method, f"/interns/{intern['id']}{path}", body)
    refused(reply, 409, REASONS.get(operation, "intern_busy"), retryable=answer == "later")


ACCEPTED = {
    "provision": (202, {"provisioning": True}),
    "suspend": (200, {"suspended": True}),
    "delete": (202, {"deleting": True}),
    "patch": (200, {"description": "changed"}),
}
ALLOWED = {
    name: cell[:2]
    for name, cell in OPERATION_CASES.items()
    if cell[2] == "ok" and cell[0] in ACCEPTED
    # Whoever suspends what runs waits until it is stopped.
    if (cell[0], cell[1][0]) != ("suspend", "running")
}


@pytest.mark.parametrize(("operation", "state"), ALLOWED.values(), ids=ALLOWED)
def test_an_accepted_operation_has_its_status_and_body(
    workspaces: TwoWorkspaces, intern: dict[str, Any], operation: str, state: tuple[str, str]
) -> None:
    workspaces.put_into(intern, state)
    method, path, given = ASKED[operation]
    reply = workspaces.here(method, f"/interns/{intern['id']}{path}", given)
    status, body = ACCEPTED[operation]
    assert reply.status_code == status, reply.text
    assert {name: reply.json()[name] for name in body} == body


def test_a_suspension_that_takes_too_long_goes_on(
    workspaces: TwoWorkspaces, intern: dict[str, Any]
) -> None:
    workspaces.put_into(intern, ("running", "running"))
    reply = workspaces.here("POST", f"/interns/{intern['id']}/suspend")
    refused(reply, 408, "timeout", retryable=True)
    workspaces.put_into(intern, ("stopped", "idle"))
    assert workspaces.here("POST", f"/interns/{intern['id']}/suspend").status_code == 200


# Who may what

ROUTES: dict[str, tuple[str, str, Any]] = {
    "list": ("GET", "/interns", None),
    "create": ("POST", "/interns", {"name": "ab", "description": "x"}),
    "get": ("GET", "/interns/{id}", None),
    "patch": ("PATCH", "/interns/{id}", {"description": "x"}),
    "delete": ("DELETE", "/interns/{id}", None),
    "provision": ("POST", "/interns/{id}/provision", None),
    "suspend": ("POST", "/interns/{id}/suspend", None),
    "daemon": ("GET", "/interns/{id}/daemon", None),
    "daemon-access": ("GET", "/interns/{id}/daemon-access", None),
    "chat": ("POST", "/interns/{id}/chat/completions", PROMPT),
}
WITH_BODY = ("create", "patch", "delete", "provision", "suspend", "chat")
OF_ANY_TYPE = ("chat",)
"""Routes whose bodies need not say that they are JSON."""


def send(
    workspaces: TwoWorkspaces, client: Client, route: str, body: Any = None, **headers: str
) -> httpx2.Response:
    method, path, usual = ROUTES[route]
    path = path.format(id=workspaces.make()["id"])
    return client(method, path, usual if body is None else body, **headers)


@pytest.mark.parametrize("route", ROUTES)
def test_a_management_key_is_refused_for_interns(workspaces: TwoWorkspaces, route: str) -> None:
    assert send(workspaces, workspaces.manage, route).status_code == 401


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_key_is_refused(workspaces: TwoWorkspaces, route: str) -> None:
    reply = send(workspaces, workspaces.client("sk-th-v1-unknown"), route)
    assert reply.status_code == 401
    assert reply.json()["error"]["message"] == "Invalid or missing API key"


@pytest.mark.parametrize("route", [route for route in ROUTES if "{id}" in ROUTES[route][1]])
def test_another_workspaces_interns_are_not_found(workspaces: TwoWorkspaces, route: str) -> None:
    refused(send(workspaces, workspaces.elsewhere, route), 404, "not_found")


@pytest.mark.parametrize("route", ROUTES)
def test_another_interns_own_key_finds_nothing(
    workspaces: TwoWorkspaces, intern: dict[str, Any], route: str
) -> None:
    refused(
        send(workspaces, workspaces.client(workspaces.own_key(intern)), route), 404, "not_found"
    )


def test_an_interns_own_key_finds_it(workspaces: TwoWorkspaces, intern: dict[str, Any]) -> None:
    own = workspaces.client(workspaces.own_key(intern))
    assert own("GET", f"/interns/{intern['id']}").json()["id"] == intern["id"]
    refused(own("GET", f"/interns/{intern['id']}/daemon"), 409, "intern_not_running")


@pytest.mark.parametrize("route", ROUTES)
def test_outside_the_programme_every_route_is_unknown(
    workspaces: TwoWorkspaces, route: str
) -> None:
    intern = workspaces.make()
    workspaces.manage("PATCH", "/workspaces/default", {"intern_programme": False})
    try:
        method, path, body = ROUTES[route]
        reply = workspaces.here(method, path.format(id=intern["id"]), body)
        if route == "chat":
            assert (reply.status_code, set(reply.json()["error"])) == (404, {"code", "message"})
        else:
            refused(reply, 404, "not_found")
    finally:
        workspaces.manage("PATCH", "/workspaces/default", {"intern_programme": True})


@pytest.mark.parametrize("route", ROUTES)
def test_a_regional_hostname_is_refused(workspaces: TwoWorkspaces, route: str) -> None:
    reply = send(workspaces, workspaces.client(workspaces.server.api_key, REGIONAL), route)
    assert reply.status_code == 403
    assert "metadata" not in reply.json()["error"]


# The order of refusals: a request that breaks two rules hears of the first


@pytest.mark.parametrize("route", WITH_BODY)
def test_confinement_comes_before_the_size(
    workspaces: TwoWorkspaces, intern: dict[str, Any], route: str
) -> None:
    own = workspaces.client(workspaces.own_key(intern))
    refused(send(workspaces, own, route, b"x" * (LARGEST + 1)), 404, "not_found")


@pytest.mark.parametrize("route", WITH_BODY)
def test_the_size_comes_before_the_type(workspaces: TwoWorkspaces, route: str) -> None:
    refused(
        send(workspaces, workspaces.here, route, b"x" * (LARGEST + 1)), 413, "payload_too_large"
    )


@pytest.mark.parametrize("route", [route for route in WITH_BODY if route not in OF_ANY_TYPE])
def test_the_type_comes_before_the_text(workspaces: TwoWorkspaces, route: str) -> None:
    refused(send(workspaces, workspaces.here, route, b"no json"), 415, "unsupported_media_type")


@pytest.mark.parametrize("route", WITH_BODY)
def test_the_text_comes_before_the_intern(workspaces: TwoWorkspaces, route: str) -> None:
    method, path, _ = ROUTES[route]
    body, path = {"unknown": 1}, path.format(id=UNKNOWN)
    reason = "bad_request" if route == "chat" else "invalid_body"
    refused(workspaces.here(method, path, body), 400, reason)


@pytest.mark.parametrize(
    "route", ["patch", "delete", "provision", "suspend", "daemon", "get", "chat"]
)
def test_an_intern_that_is_not_there_is_not_found(workspaces: TwoWorkspaces, route: str) -> None:
    method, path, body = ROUTES[route]
    for intern_id in (UNKNOWN, "no-uuid"):
        refused(workspaces.here(method, path.format(id=intern_id), body), 404, "not_found")


# Bodies


@pytest.mark.parametrize("route", WITH_BODY)
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
def test_the_largest_body_passes_and_one_byte_more_does_not(
    workspaces: TwoWorkspaces, route: str, *, chunked: bool
) -> None:
    usual = json.dumps(ROUTES[route][2] or {}).encode()
    if route == "create":
        usual = json.dumps({"name": workspaces.name()}).encode()
    for size, too_large in ((LARGEST, False), (LARGEST + 1, True)):
        body = usual + b" " * (size - len(usual))
        sent: Any = iter([body[:500_000], body[500_000:]]) if chunked else body
        reply = send(workspaces, workspaces.here, route, sent, content_type="application/json")
        assert (reply.status_code == 413) is too_large, reply.text
        assert reply.status_code != 400


@pytest.mark.parametrize("route", ["delete", "provision", "suspend"])
def test_an_empty_body_or_object_is_nothing(workspaces: TwoWorkspaces, route: str) -> None:
    for body in (b"", b"{}"):
        headers = {"content_type": "application/json"} if body else {}
        reply = send(workspaces, workspaces.here, route, body, **headers)
        assert reply.status_code in {200, 202, 409}


@pytest.mark.parametrize("content_type", ["application/json", "application/JSON; charset=utf-8"])
def test_json_is_declared_in_any_spelling(workspaces: TwoWorkspaces, content_type: str) -> None:
    body = json.dumps({"name": workspaces.name()}).encode()
    assert workspaces.here("POST", "/interns", body, content_type=content_type).status_code == 201


@pytest.mark.parametrize("content_type", ["text/plain", "application/json5", "", "json"])
def test_another_type_is_refused(workspaces: TwoWorkspaces, content_type: str) -> None:
    body = json.dumps({"name": workspaces.name()}).encode()
    reply = workspaces.here("POST", "/interns", body, content_type=content_type)
    refused(reply, 415, "unsupported_media_type")


BAD_NAMES = ("", "1a", "-ab", "ab-", "a--b", "a_b", "a b", "ab\n", "äb")
BAD_MODELS = ("", "a/", "/b", "a b/c", "a/b\n", "a" * 200 + "/b")
BAD_CREATIONS: dict[str, Any] = {
    "nothing": {},
    "no object": [],
    "no name": {"description": "x"},
    "null name": {"name": None},
    "short name": {"name": "a"},
    "long name": {"name": "a" * 18},
    "upper case": {"name": "Ada"},
    **{f"name {name!r}": {"name": name} for name in BAD_NAMES},
    "number for a name": {"name": 12},
    "long description": {"name": "ada", "description": "x" * 2_001},
    "long instructions": {"name": "ada", "instructions": "x" * 100_001},
    "NUL": {"name": "ada", "description": "\0"},
    "half a pair": {"name": "ada", "description": "\ud800"},
    "text for a flag": {"name": "ada", "provision": "true"},
    "no vault id": {"name": "ada", "vault_id": "mine"},
    "no workspace id": {"name": "ada", "workspace_id": "mine"},
    "model": {"name": "ada", "model": "a/b"},
    "unknown field": {"name": "ada", "colour": "red"},
}


@pytest.mark.parametrize("body", BAD_CREATIONS.values(), ids=BAD_CREATIONS)
def test_a_bad_creation_is_refused(workspaces: TwoWorkspaces, body: Any) -> None:
    refused(workspaces.here("POST", "/interns", body), 400, "invalid_body")


BAD_CHANGES: dict[str, Any] = {
    "nothing sent": b"",
    "null name": {"name": None},
    "bad name": {"name": "a--b"},
    "long description": {"description": "x" * 2_001},
    "model without author": {"model": "gpt"},
    **{f"model {model[:9]!r}": {"model": model} for model in BAD_MODELS},
    "model with two slashes": {"model": "a/b/c"},
    "long model": {"model": "a/" + "b" * 199},
    "vault": {"vault_id": UNKNOWN},
    "unknown field": {"colour": "red"},
}


@pytest.mark.parametrize("name", ["a1", "ada-lovelace", "a-b-c", "a" * 17])
def test_a_name_may_hold_digits_and_hyphens(workspaces: TwoWorkspaces, name: str) -> None:
    reply = workspaces.here("POST", "/interns", {"name": name}, Idempotency_Key=name * 15)
    assert (reply.status_code in {200, 201}, reply.json()["name"]) == (True, name)


@pytest.mark.parametrize("model", ["openai/gpt-4o:free", "~x/y@z", "a" * 99 + "/" + "b" * 100])
def test_a_model_has_an_author_and_a_name(
    workspaces: TwoWorkspaces, intern: dict[str, Any], model: str
) -> None:
    changed = workspaces.here("PATCH", f"/interns/{intern['id']}", {"model": model})
    assert changed.json()["model"] == model


@pytest.mark.parametrize("body", BAD_CHANGES.values(), ids=BAD_CHANGES)
def test_a_bad_change_is_refused(
    workspaces: TwoWorkspaces, intern: dict[str, Any], body: Any
) -> None:
    refused(workspaces.here("PATCH", f"/interns/{intern['id']}", body), 400, "invalid_body")


@pytest.mark.parametrize("route", ["provision", "suspend"])
def test_a_body_with_a_field_is_refused(workspaces: TwoWorkspaces, route: str) -> None:
    refused(send(workspaces, workspaces.here, route, {"force": True}), 400, "invalid_body")


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"name": NaN}', b"[" * 100_000])
def test_a_body_that_is_not_json_is_refused(workspaces: TwoWorkspaces, body: bytes) -> None:
    reply = workspaces.here("POST", "/interns", body, content_type="application/json")
    refused(reply, 400, "invalid_body")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_chat_whose_body_is_no_json_object_is_refused(
    workspaces: TwoWorkspaces, body: bytes
) -> None:
    refused(
        workspaces.here("POST", f"/interns/{UNKNOWN}/chat/completions", body), 400, "bad_request"
    )


@pytest.mark.parametrize("key", ["", "k" * 256], ids=["empty", "long"])
def test_a_bad_idempotency_key_is_refused(workspaces: TwoWorkspaces, key: str) -> None:
    reply = workspaces.here("POST", "/interns", {"name": workspaces.name()}, Idempotency_Key=key)
    refused(reply, 400, "invalid_body")


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=501", "limit=x", "status=on", "status=queued,"),
        *("status=queued%2C%20running", "status="),
        *(f"starting_after={cursor}" for cursor in ("", "x", "AAAA", "MjAyNi0wMS0wMg", "%C3%A4")),
        "status=" + ",".join(["queued"] * 9),
    ],
)
def test_a_bad_list_is_refused(workspaces: TwoWorkspaces, query: str) -> None:
    refused(workspaces.here("GET", f"/interns?{query}"), 400, "invalid_body")


def test_only_ones_own_workspace_may_be_named(workspaces: TwoWorkspaces) -> None:
    own = workspaces.server.announced["workspace_id"]
    for spelling in (own, own.upper()):
        assert workspaces.here("GET", f"/interns?workspace_id={spelling}").status_code == 200
    refused(workspaces.here("GET", f"/interns?workspace_id={UNKNOWN}"), 404, "not_found")
    body = {"name": workspaces.name(), "workspace_id": UNKNOWN}
    refused(workspaces.here("POST", "/interns", body), 404, "not_found")
    assert workspaces.make(workspace_id=own)["workspace_id"] == own
