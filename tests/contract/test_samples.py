"""The documentation's examples, run with the libraries that they are for."""

import json
from collections.abc import Generator

import httpx2
import pytest
import yaml

from tests.support.client_process import CLIENTS, ROOT, run_client
from tests.support.server_process import ServerProcess, start_server

ORIGIN, API_KEY = "http://127.0.0.1:8080", "sk-th-v1-..."
"""Stand in every example for the installation's own address and the caller's key."""
SAMPLES = yaml.safe_load((ROOT / "src" / "tollhouse" / "api" / "samples.yaml").read_text())
LIBRARIES = ("anthropic", "openai", "openrouter")
NEED_A_MANAGEMENT_KEY = {"create_key"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("samples")) as running:
        yield running


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_example_runs_as_it_stands(server: ServerProcess, library: str) -> None:
    chosen = [
        [name, label, source.replace(ORIGIN, server.origin).replace(API_KEY, server.api_key)]
        for name, sample in SAMPLES.items()
        for label, source in sample.get("code", {}).items()
        if label.split(",")[0] == library
    ]
    printed = run_client(library, CLIENTS / "run_samples.py", env={"SAMPLES": json.dumps(chosen)})
    assert [each[:2] for each in printed] == [each[:2] for each in chosen]
    assert [name for name, _, text in printed if not text.strip()] == []


def test_every_example_is_of_a_library_that_runs_it() -> None:
    labels = {
        label.split(",")[0] for sample in SAMPLES.values() for label in sample.get("code", ())
    }
    assert labels == set(LIBRARIES)


def test_the_page_shows_every_operation(server: ServerProcess) -> None:
    """It shows operations below their tags, and knows the tags that the document describes."""
    document = httpx2.get(f"{server.origin}/openapi.json", timeout=60).json()
    used = {
        tag
        for methods in document["paths"].values()
        for operation in methods.values()
        for tag in operation["tags"]
    }
    assert used == {tag["name"] for tag in document["tags"]}


def test_each_example_of_a_body_is_accepted(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.base_url, timeout=20) as client:
        document = client.get(f"{server.origin}/openapi.json").json()
        places = {
            operation["operationId"]: (method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        assert set(SAMPLES) <= set(places)
        for name, sample in SAMPLES.items():
            method, path, operation = places[name]
            if "body" not in sample:
                continue
            media = operation["requestBody"]["content"]["application/json"]
            assert media["example"] == sample["body"]
            managed = name in NEED_A_MANAGEMENT_KEY
            key = server.management_key if managed else server.api_key
            reply = client.request(
                method,
                path.replace("{name}", "example"),
                json=sample["body"],
                headers={"Authorization": f"Bearer {key}"},
            )
            assert reply.status_code in {200, 201, 202}, (name, reply.text)
