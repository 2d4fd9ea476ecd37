import pytest

from tollhouse.api.control import not_offered


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/files", "inline"),
        ("/files/file-1/content", "inline"),
        ("/images/generations", "/v1/chat/completions"),
        ("/audio/transcriptions", "input_audio"),
        ("/moderations", "policy"),
        ("/rerank", "/v1/embeddings"),
        ("/assistants", "/v1/interns"),
        ("/threads/t/runs", "/v1/interns"),
        ("/fine_tuning/jobs", "settings"),
        ("/responses/resp_1", "whole conversation"),
        ("/chat/completions/gen-1", "whole conversation"),
        ("/messages/batches", "/v1/batches"),
    ],
)
def test_an_endpoint_of_another_api_names_what_to_use(path: str, instead: str) -> None:
    said = not_offered(path) or ""
    assert "is not offered here" in said
    assert instead in said


@pytest.mark.parametrize("path", ["/nothing", "/filesystem", "/", "/model"])
def test_any_other_path_is_none_of_them(path: str) -> None:
    assert not_offered(path) is None
