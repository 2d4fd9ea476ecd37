"""How far an intern's own key reaches: of all routes of a server those below, and no others.

What it reaches are the things of its intern. Those of its workspace and of another intern are as if
they did not exist.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx2
import pytest

from tests.support.backdoor import new_own_key
from tests.support.server_process import ServerProcess, start_server

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
BATCH = {
    "endpoint": "/v1/chat/completions",
    "model": "simulated/echo",
    "requests": [{"custom_id": "a", "body": CHAT}],
}
SECRET = {"value": "hunter2", "hosts": ["api.example.com"]}
FREE_TO_ALL = {
    "GET /models",
    "GET /models/count",
    "GET /models/{author}/{slug}/endpoints",
    "GET /model/{author}/{slug}",
    "GET /providers",
}
WITHOUT_NAME: dict[str, Any] = {
    "GET /key": None,
    "GET /batches": None,
    "POST /batches": BATCH,
    "POST /chat/completions": {"model": "simulated/echo", **CHAT},
    "POST /completions": {"model": "simulated/echo", "prompt": "Hello"},
    "POST /responses": {"model": "simulated/echo", "input": "Hello"},
    "POST /messages": {"model": "simulated/echo", "max_tokens": 10, **CHAT},
    "POST /messages/count_tokens": {"model": "simulated/echo", **CHAT},
    "POST /embeddings": {"model": "simulated/embedding", "input": "Hello"},
    "POST /estimate": {
        "endpoint": "/v1/chat/completions",
        "body": {"model": "simulated/echo", **CHAT},
    },
}
"""Routes that an intern's key may call, each with a body."""
OF_THE_INTERN: dict[str, Any] = {
    "GET /generation": None,
    "GET /batches/{id}": None,
    "POST /batches/{id}/cancel": None,
    "DELETE /batches/{id}": None,
    "GET /interns/{internId}": None,
    "PATCH /interns/{internId}": {"description": "mine"},
    "DELETE /interns/{internId}": None,
    # Beyond what is asked here they would begin with a sandbox, or wait for one.
    "POST /interns/{internId}/provision": {"unknown": 1},
    "POST /interns/{internId}/suspend": {"unknown": 1},
    "GET /interns/{internId}/logs": None,
    "GET /interns/{internId}/daemon": None,
    "GET /interns/{internId}/daemon-access": None,
    "GET /vault/interns/{internId}/secrets": None,
    "GET /vault/interns/{internId}/effective-secrets": None,
    "PUT /vault/interns/{internId}/secrets/{name}": SECRET,
    "DELETE /vault/interns/{internId}/secrets/{name}": None,
}
"""Routes that it may call for its own intern, each with a body."""
HIDDEN = {"POST /egress-sessions"}
"""Routes that the API description leaves out."""
REFUSALS = {401, 403, 404}


@dataclass(frozen=True)
class ResourceIds:
    """Ids of existing resources, by path parameter; of batches and workspaces by path."""

    names: Mapping[str, str]
    generation: str

    def path(self, template: str) -> str:
        """Return a path with these ids."""
        noun = template.split("/")[1]
        path = template.replace("{id}", self.names.get(noun, "")).format(**self.names)
        return f"{path}?id={self.generation}" if path == "/generation" else path


class Caller:
    """A client with a key."""

    def __init__(self, http: httpx2.Client, key: str) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {key}"}

    def __call__(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        return self._http.request(method, f"/v1{path}", headers=self._headers, json=body)

    def make(self, path: str, body: Any, method: str = "POST") -> httpx2.Response:
        reply = self(method, path, body)
        assert reply.is_success, reply.text
        return reply

    def things(self, intern_id: str, names: Mapping[str, str]) -> ResourceIds:
        """Create a resource of each kind."""
        self.make(f"/vault/interns/{intern_id}/secrets/token", SECRET, "PUT")
        batch_id = self.make("/batches", BATCH).json()["id"]
        said = self.make("/chat/completions", WITHOUT_NAME["POST /chat/completions"])
        known = {"internId": intern_id, "name": "token", "batches": batch_id, **names}
        return ResourceIds(known, said.headers["x-generation-id"])


@dataclass(frozen=True)
class Deployment:
    """A server with resources that do not belong to the intern under test."""

    server: ServerProcess
    http: httpx2.Client
    person: Caller
    theirs: ResourceIds

    def intern(self, name: str) -> tuple[str, Caller]:
        """Create an intern, or find it; return its id and a client with its own key."""
        intern_id = self.person.make("/interns", {"name": name}).json()["id"]
        workspace_id = self.server.announced["workspace_id"]
        key = new_own_key(self.server, workspace_id, intern_id)
        return intern_id, Caller(self.http, key)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Generator[Deployment]:
    with (
        start_server(tmp_path_factory.mktemp("reach")) as server,
        httpx2.Client(base_url=server.origin, timeout=30) as http,
    ):
        told = server.announced
        manager, person = Caller(http, server.management_key), Caller(http, server.api_key)
        person.make("/vault/secrets/token", SECRET, "PUT")
        user = manager.make("/users", {"name": "Grace"}).json()["data"]["id"]
        own_key = manager.make("/byok", {"provider": "simulated", "key": "sk-of-theirs-0"})
        names = {
            "byok": own_key.json()["data"]["id"],
            "account_id": told["account_id"],
            "workspaces": told["workspace_id"],
            "user_id": user,
            "hash": sha256(server.api_key.encode()).hexdigest(),
            "author": "simulated",
            "slug": "echo",
            "end_user": "ada",
            "interval": "daily",
        }
        eve = person.make("/interns", {"name": "eve"}).json()["id"]
        yield Deployment(server, http, person, person.things(eve, names))


@pytest.fixture(scope="module")
def operations(deployment: Deployment) -> set[str]:
    """All routes below the version segment."""
    paths = deployment.http.get("/openapi.json").json()["paths"]
    described = {f"{method.upper()} {path}" for path, at in paths.items() for method in at}
    return described | HIDDEN


def test_every_other_route_is_closed(deployment: Deployment, operations: set[str]) -> None:
    _, own = deployment.intern("ada")
    closed = operations - FREE_TO_ALL - set(WITHOUT_NAME) - set(OF_THE_INTERN)
    answers = {}
    for operation in closed:
        method, template = operation.split()
        body = None if method in {"GET", "DELETE"} else {}
        answers[operation] = own(method, deployment.theirs.path(template), body).status_code
    assert {each for each, status in answers.items() if status not in REFUSALS} == set()


def test_the_lists_name_only_existing_routes(operations: set[str]) -> None:
    assert FREE_TO_ALL | set(WITHOUT_NAME) | set(OF_THE_INTERN) <= operations


@pytest.mark.parametrize("operation", WITHOUT_NAME)
def test_an_interns_key_may_use_each_listed_route(deployment: Deployment, operation: str) -> None:
    _, own = deployment.intern("ada")
    method, path = operation.split()
    assert own(method, path, WITHOUT_NAME[operation]).is_success


@pytest.mark.parametrize("operation", OF_THE_INTERN)
def test_the_interns_own_resources_are_found(deployment: Deployment, operation: str) -> None:
    intern_id, own = deployment.intern(f"own-{[*OF_THE_INTERN].index(operation)}")
    method, template = operation.split()
    path = own.things(intern_id, {}).path(template)
    status = own(method, path, OF_THE_INTERN[operation]).status_code
    assert status not in REFUSALS
    assert status < 500


@pytest.mark.parametrize("operation", OF_THE_INTERN)
def test_resources_of_others_are_not_found(deployment: Deployment, operation: str) -> None:
    _, own = deployment.intern("ada")
    method, template = operation.split()
    reply = own(method, deployment.theirs.path(template), OF_THE_INTERN[operation])
    assert reply.status_code == 404


def test_a_list_of_batches_has_only_the_interns(deployment: Deployment) -> None:
    _, own = deployment.intern("lists")
    made = own.make("/batches", BATCH).json()["id"]
    assert [each["id"] for each in own("GET", "/batches").json()["data"]] == [made]
