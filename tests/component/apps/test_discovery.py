import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tollhouse.apps.discovery import LocalServer, with_local_models
from tollhouse.settings.sections import Settings

VLLM = b'{"object":"list","data":[{"id":"org/Tiny 7B","object":"model","max_model_len":32768}]}'


@contextmanager
def serving(body: bytes, status: int = 200) -> Generator[LocalServer]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v1/models" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield LocalServer("tiny", "Tiny", server.server_port)
        finally:
            server.shutdown()
            thread.join()


def settings(**fields: object) -> Settings:
    return Settings.model_validate({"data_dir": "/data"} | fields)


def test_a_server_that_answers_joins_with_its_models_free_of_charge() -> None:
    with serving(VLLM) as server:
        found = with_local_models(settings(), [server])
    _, provider = found.providers
    assert (provider.slug, provider.kind) == ("tiny", "openai_compatible")
    assert provider.base_url == f"http://127.0.0.1:{server.port}/v1"
    assert provider.idempotent
    [model] = found.models
    assert (model.id, model.context_length) == ("tiny/org-Tiny-7B", 32_768)
    assert (model.endpoints[0].model, model.endpoints[0].pricing) == ("org/Tiny 7B", "free")


@pytest.mark.parametrize(
    ("body", "status"), [(b"<html>", 200), (b"[]", 200), (VLLM[:20], 200), (b'{"data":[]}', 200)]
)
def test_whoever_else_answers_does_not_join(body: bytes, status: int) -> None:
    with serving(body, status) as server:
        assert with_local_models(settings(), [server]) == settings()


def test_where_nobody_listens_nothing_joins() -> None:
    with serving(VLLM) as server:
        pass
    assert with_local_models(settings(), [server]) == settings()


def test_a_configured_provider_of_the_name_stays_as_it_is() -> None:
    configured = settings(providers=[{"slug": "tiny", "kind": "simulated"}])
    with serving(VLLM) as server:
        assert with_local_models(configured, [server]) == configured
