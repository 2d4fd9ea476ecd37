"""Requests drawn from the OpenAPI document: every response is as documented.

    /openapi.json ---> schemathesis ---> a case, valid or not ---> `Known.fit` ---> the server

What is drawn at random names nothing that exists, so most cases get the ids, the models and the
texts of things that do. Every case carries a key that may do the operation: what happens without
one is shown in `test_ingress`.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from secrets import token_hex
from time import sleep
from typing import Any, Final

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.server_process import ServerProcess, start_server
from tests.support.vault_interns import add_intern

CONFIG: Final = """
server:
  max_requests_per_address_per_minute: 100000000
batches:
  submits_per_hour: 100000000
interns:
  slack_url: http://127.0.0.1:9/api/
  max_per_creator: 100000000
providers:
  - {slug: simulated, kind: simulated}
"""
SECRET_NAME: Final = "known"
SECRET: Final = {"value": "hunter2", "hosts": ["api.example.com"]}
DELETED: Final = (httpx2.codes.OK, httpx2.codes.ACCEPTED, httpx2.codes.NO_CONTENT)
SUCCESSES: Final = range(200, 300)
CASES_IN_SOAK: Final = 15
"""Ten times as many with `DOSE=full`: the small doses are there to end soon."""
MORE: Final = 80
"""Cases where all were refused: of some operations one case in twenty is what they take."""
BATCHES_AT_ONCE: Final = 10
SHARES: Final = 22
"""Tests of the soak that the operations are dealt to: processes can run them side by side."""
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
FOR_API_KEYS: Final = {
    *("batches", "chat", "completions", "embeddings", "estimate", "messages", "responses"),
    *("interns", "vault"),
    *("generation", "key", "model", "models", "providers"),
}
"""First segments of the paths that an API key may call; all others want a management key."""
NEED_A_SANDBOX: Final = {
    "POST /interns/{internId}/suspend",
    "GET /interns/{internId}/daemon",
    "GET /interns/{internId}/daemon-access",
    "POST /interns/{internId}/chat/completions",
    "POST /interns/{internId}/invoke",
    "POST /interns/{internId}/install",
    "POST /interns/{internId}/slack/events",
    "POST /ledger/holders/{id}/write-off",
}
"""Operations that only a running intern accepts, one whose chat service answers, or a server that
shares its database."""
OWN_KEY: Final = {"provider": "simulated", "key": "sk-known-key"}
TEXTS: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": "Hello"}],
    "input": "Hello",
    "prompt": "Hello",
}
"""A text for every model, by the format's field for it."""
SCALAR: Final = {"type": ["string", "integer", "boolean", "null"]}
FLAT: Final = {
    "anyOf": [
        SCALAR,
        {"type": "object", "additionalProperties": SCALAR, "maxProperties": 3},
        {"type": "array", "items": SCALAR, "maxItems": 3},
    ]
}
SHAPES: Final = {"type", "enum", "const", "anyOf", "$ref"}
NESTED: Final = {"anyOf", "items"}
AS_DRAWN, WITH_NAMES, WITH_NAMES_AND_TEXTS = "as drawn", "with names", "with names and texts"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    """Run a server that nobody else asks: what a case names stays until that case deletes it."""
    with start_server(tmp_path_factory.mktemp("probed"), config=CONFIG) as running:
        yield running


class ExistingResources:
    """Resources that exist on a server, by the fields that name them."""

    def __init__(self, server: ServerProcess) -> None:
        announced = server.announced
        self._ended_batches: list[str] = []
        self._long_batch: str | None = None
        manager = authorization(announced["management_key"])
        self._http = httpx2.Client(base_url=announced["base_url"], headers=manager, timeout=60)
        chat = {"model": "simulated/echo", "messages": TEXTS["messages"]}
        self._caller = authorization(announced["api_key"])
        reply = self._http.post("/chat/completions", json=chat, headers=self._caller)
        assert reply.status_code == httpx2.codes.OK, reply.text
        user = self._make("/users")["id"]
        self._fields: dict[str, str] = {
            "account_id": announced["account_id"],
            "creator_user_id": user,
            "id": reply.headers["X-Generation-Id"],
            **OWN_KEY,
        }
        self._in_paths: dict[str, dict[str, str]] = {
            # Not the account of our keys: what changes it must not shut them out.
            "accounts": {"account_id": self._make("/accounts")["id"]},
            "users": {"user_id": user, "interval": "daily"},
            "model": {"author": "simulated", "slug": "echo"},
            "models": {"author": "simulated", "slug": "echo", "name": "simulated/echo"},
            "vault": {
                "internId": add_intern(server).id,
                "name": SECRET_NAME,
            },
        }
        for kind in ("workspaces", "users", "keys", "byok", "vault", "interns"):
            self.make_again(kind)

    def make_again(self, kind: str) -> None:
        """Create again what was deleted, by the first segment of its path."""
        match kind:
            case "workspaces":
                workspace = self._make("/workspaces")["id"]
                self._fields["workspace_id"] = workspace
                named = {"id": workspace, "interval": "daily", "end_user": "ada"}
                self._in_paths["workspaces"] = named
                for owner in (workspace, f"{workspace}/end-users/ada"):
                    self._limit(f"/workspaces/{owner}")
            case "users":
                self._limit(f"/users/{self._in_paths['users']['user_id']}")
            case "keys":
                self._in_paths["keys"] = {"hash": self._make("/keys")["hash"]}
            case "byok":
                self._in_paths["byok"] = {"id": self._make("/byok")["id"]}
            case "batches":
                self._ended_batches.pop()
            case "vault":
                self._store_secrets()
            case "interns":
                self._in_paths["interns"] = {"internId": self._new_intern()}
            case _:
                raise AssertionError(kind)

    def _limit(self, owner: str) -> None:
        reply = self._http.put(f"{owner}/budgets/daily", json={"limit_usd": 5})
        assert reply.status_code == httpx2.codes.OK, reply.text

    def _new_intern(self) -> str:
        """Create an intern that was never started."""
        body = {"name": f"known-{token_hex(4)}"}
        reply = self._http.post("/interns", json=body, headers=self._caller)
        assert reply.status_code == httpx2.codes.CREATED, reply.text
        return reply.json()["id"]

    def _store_secrets(self) -> None:
        for path in ("secrets", f"interns/{self._in_paths['vault']['internId']}/secrets"):
            url = f"/vault/{path}/{SECRET_NAME}"
            reply = self._http.put(url, json=SECRET, headers=self._caller)
            assert reply.status_code == httpx2.codes.OK, reply.text

    def fit(self, case: Case, how: str) -> Case:
        """Put ids of existing resources into a case; leave values of another type alone."""
        if isinstance(case.body, dict) and case.path == "/interns":
            # Nothing runs here; and a workspace or vault that is not ours is refused.
            names = ("provision", *(() if how == AS_DRAWN else ("workspace_id", "vault_id")))
            case.body = {name: each for name, each in case.body.items() if name not in names}
        if how == AS_DRAWN:
            return case
        if case.path_parameters:
            case.path_parameters = {**case.path_parameters, **self._in_path(case.path)}
        if case.query and case.path != "/interns":
            case.query = put(case.query, self._fields)
        if isinstance(case.body, dict):
            model = "embedding" if case.path == "/embeddings" else "echo"
            known = {} if case.path == "/interns" else self._fields
            body = put(case.body, {**known, "model": f"simulated/{model}"})
            if case.path == "/estimate" and isinstance(body.get("body"), dict):
                chat = {"model": "simulated/echo", "messages": TEXTS["messages"]}
                body |= {"endpoint": "/v1/chat/completions", "body": {**body["body"], **chat}}
            if first_segment(case.path) == "vault":
                secret = {**SECRET, "names": [SECRET_NAME]}
                body |= {name: each for name, each in secret.items() if name in body}
            if how == WITH_NAMES_AND_TEXTS:
                body |= {name: text for name, text in TEXTS.items() if name in body}
            case.body = body
        return case

    def _in_path(self, path: str) -> dict[str, str]:
        if first_segment(path) != "batches":
            return self._in_paths.get(first_segment(path), {})
        return {"id": self._long() if path.endswith("/cancel") else self._ended()}

    def _ended(self) -> str:
        """Return a batch that has ended; several are awaited at once."""
        if not self._ended_batches:
            begun = [self._submit("simulated/echo", items=1) for _ in range(BATCHES_AT_ONCE)]
            while any(self._status(each) != "completed" for each in begun):
                sleep(0.05)
            self._ended_batches = begun
        return self._ended_batches[-1]

    def _long(self) -> str:
        """Return a batch that takes minutes unless it is cancelled."""
        if self._long_batch is None:
            self._long_batch = self._submit("simulated/slow", items=2_000)
        return self._long_batch

    def _submit(self, model: str, items: int) -> str:
        asked = [
            {"custom_id": str(number), "body": {"messages": TEXTS["messages"]}}
            for number in range(items)
        ]
        batch = {"endpoint": "/v1/chat/completions", "model": model, "requests": asked}
        reply = self._http.post("/batches", json=batch, headers=self._caller)
        assert reply.status_code == 202, reply.text
        return reply.json()["id"]

    def _status(self, batch_id: str) -> str:
        reply = self._http.get(f"/batches/{batch_id}", headers=self._caller)
        return reply.raise_for_status().json()["status"]

    def _make(self, path: str) -> dict[str, Any]:
        name = f"known-{token_hex(8)}"
        more = {"/workspaces": {"slug": name}, "/byok": OWN_KEY}.get(path, {})
        body = {"name": name, **more}
        reply = self._http.post(path, json=body)
        assert reply.status_code == 201, reply.text
        return reply.json()["data"]

    def close(self) -> None:
        self._http.close()


@dataclass
class Outcome:
    """The results of the cases of one operation."""

    statuses: set[int] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    """Problem -> the first case that showed it."""

    def add(self, status: int, failures: FailureGroup | None, how_to_repeat: str) -> None:
        self.statuses.add(status)
        for failure in failures.exceptions if failures else ():
            what = f"{status} {failure.title}: {failure.message}"
            self.problems.setdefault(what, how_to_repeat)

    def report(self) -> str:
        return "\n\n".join(f"{what}\n{how}" for what, how in self.problems.items())


class Prober:
    """Sends cases to a server."""

    def __init__(self, server: ServerProcess) -> None:
        self._announced = server.announced
        self._known = ExistingResources(server)
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy of the developer's

    def probe(self, operation: APIOperation[Any, Any, Any, Any], cases: int) -> Outcome:
        """Send so many cases of an operation: the same ones every time, unless in the soak."""
        outcome = Outcome()
        fittings = st.sampled_from([AS_DRAWN, WITH_NAMES, WITH_NAMES_AND_TEXTS])
        drawn = st.sampled_from(kinds(operation)).flatmap(operation.as_strategy)

        @settings(
            max_examples=cases,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(drawn, fittings)
        def send(case: Case, how: str) -> None:
            self._send(self._known.fit(case, how), outcome)

        send()
        return outcome

    def _send(self, case: Case, outcome: Outcome) -> None:
        kind = "api_key" if first_segment(case.path) in FOR_API_KEYS else "management_key"
        reply = case.call(
            base_url=self._announced["base_url"],
            session=self._session,
            headers=authorization(self._announced[kind]),
        )
        failures = None
        try:
            case.validate_response(reply, checks=CHECKS)
        except FailureGroup as group:
            failures = group
        outcome.add(reply.status_code, failures, case.as_curl_command() if failures else "")
        if case.method == "DELETE" and reply.status_code in DELETED:
            self._known.make_again(first_segment(case.path))

    def close(self) -> None:
        self._session.close()
        self._known.close()


def authorization(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def first_segment(path: str) -> str:
    return path.split("/")[1]


def put(fields: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    return {
        name: known[name] if name in known and isinstance(value, str) else value
        for name, value in fields.items()
    }


def kinds(operation: APIOperation[Any, Any, Any, Any]) -> list[GenerationMode]:
    """Return how to draw cases: one of five is not valid, as that takes four times as long."""
    if not (operation.body or operation.query or operation.headers):
        return [GenerationMode.POSITIVE]  # every text fits a path
    return [GenerationMode.POSITIVE] * 4 + [GenerationMode.NEGATIVE]


def flat(schema: Any) -> Any:
    """Return a schema whose free parts are flat: deep ones take most of the time to draw."""
    if isinstance(schema, list):
        return [flat(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if not SHAPES & schema.keys():
        return FLAT
    flattened = {name: flat(each) if name in NESTED else each for name, each in schema.items()}
    if "properties" in schema:
        flattened["properties"] = {name: flat(each) for name, each in schema["properties"].items()}
    if schema.get("additionalProperties") is True:
        flattened["additionalProperties"] = SCALAR
    return flattened


def operations(origin: str) -> list[APIOperation[Any, Any, Any, Any]]:
    document = httpx2.get(f"{origin}/openapi.json", timeout=60).json()
    schemas = document["components"]["schemas"]
    for name in schemas:
        if name.endswith(("Request", "Message")):
            schemas[name] = flat(schemas[name])
    for path in document["paths"].values():
        for operation in path.values():
            # Schemathesis takes the schema of a stream, which is a text, for that of one event.
            operation["responses"].get("200", {}).get("content", {}).get(
                "text/event-stream", {}
            ).pop("schema", None)
    config = SchemathesisConfig.from_dict(
        {
            "generation": {"with-security-parameters": False},
            "output": {"sanitization": {"enabled": False}},
        }
    )
    schema = schemathesis.openapi.from_dict(document, config=config)
    return [each.ok() for each in schema.get_all_operations()]


def check(
    server: ServerProcess,
    subtests: pytest.Subtests,
    mine: list[APIOperation[Any, Any, Any, Any]],
    cases: int,
) -> None:
    """Check operations.

    One case shows little where it is refused. Of many, some have to do what the operation is for.
    """
    assert mine
    with closing(Prober(server)) as prober:
        for operation in mine:
            with subtests.test(operation.label):
                outcome = prober.probe(operation, cases)
                if cases > 1 and operation.label not in NEED_A_SANDBOX:
                    if min(outcome.statuses) not in SUCCESSES:
                        outcome = prober.probe(operation, MORE)
                    assert min(outcome.statuses) in SUCCESSES, outcome.statuses
                assert not outcome.problems, outcome.report()
                assert httpx2.codes.UNAUTHORIZED not in outcome.statuses
    assert httpx2.get(f"{server.origin}/readyz").json()["status"] == "ready"


@pytest.mark.timeout(600)
def test_every_response_is_as_documented(server: ServerProcess, subtests: pytest.Subtests) -> None:
    check(server, subtests, operations(server.origin), cases=1)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("share", range(SHARES))
def test_every_response_of_a_long_run_is_as_documented(
    server: ServerProcess, subtests: pytest.Subtests, share: int, soak_factor: int
) -> None:
    mine = operations(server.origin)[share::SHARES]
    check(server, subtests, mine, CASES_IN_SOAK * soak_factor)
