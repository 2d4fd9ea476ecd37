import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tollhouse.cli.banner import Serving, as_json, as_text, curl

FIRST = Serving(
    address="http://127.0.0.1:8080",
    data_dir=Path("/data/my gateway"),
    api_key="sk-th-v1-api",
    management_key="sk-th-v1-management",
    account_id="account",
    workspace_id="workspace",
    example_model="simulated/echo",
)
LATER = replace(FIRST, api_key=None, management_key=None, account_id=None, workspace_id=None)


def test_a_first_start_shows_keys_data_and_a_line_to_paste() -> None:
    text = as_text(FIRST, "tollhouse")
    assert "http://127.0.0.1:8080/v1" in text
    assert "sk-th-v1-management" in text
    assert "shown this once" in text
    assert "/data/my gateway" in text
    assert curl(FIRST.base_url, "sk-th-v1-api", "simulated/echo") in text


def test_a_later_start_says_how_to_make_another_key() -> None:
    text = as_text(LATER, ".venv/bin/tollhouse")
    assert ".venv/bin/tollhouse keys create NAME --data-dir '/data/my gateway'" in text
    assert "curl" not in text


def test_without_a_model_there_is_nothing_to_paste() -> None:
    text = as_text(replace(FIRST, example_model=None), "tollhouse")
    assert "No model is configured" in text
    assert "curl" not in text


def test_the_line_to_paste_is_one_line_and_quoted_for_a_shell() -> None:
    line = curl("http://h/v1", "sk-th-v1-api", "it's/a:model")
    assert "\n" not in line
    words = shlex.split(line)
    assert words[1] == "http://h/v1/chat/completions"
    assert json.loads(words[-1])["model"] == "it's/a:model"


def test_json_is_one_line_with_the_same_fields_on_every_start() -> None:
    first, later = json.loads(as_json(FIRST)), json.loads(as_json(LATER))
    assert first["base_url"] == "http://127.0.0.1:8080/v1"
    assert first["api_key"] == "sk-th-v1-api"
    assert later["api_key"] is None
    assert first.keys() == later.keys()
    assert "\n" not in as_json(FIRST)


@pytest.mark.parametrize(
    ("bound", "shown"),
    [
        ("http://0.0.0.0:80", "http://127.0.0.1:80"),
        ("http://[::]:80", "http://[::1]:80"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("http://10.0.0.5:80", "http://10.0.0.5:80"),
    ],
)
def test_an_address_that_means_all_is_shown_as_one_to_connect_to(bound: str, shown: str) -> None:
    assert replace(FIRST, address=bound).origin == shown
