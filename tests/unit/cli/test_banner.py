import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tollhouse.apps.bootstrap import Bootstrapped
from tollhouse.apps.serve import Started
from tollhouse.cli.serving import banner_json, banner_text, curl_example
from tollhouse.storage.data_folder import DataFolder

FIRST = Started(
    address="http://127.0.0.1:8080",
    folder=DataFolder(Path("/data/my gateway")),
    first=Bootstrapped("sk-th-v1-api", "sk-th-v1-management", "account", "workspace"),
    example_model="simulated/echo",
)


def test_without_a_model_there_is_nothing_to_paste() -> None:
    text = banner_text(replace(FIRST, example_model=None), "tollhouse")
    assert "No model is configured" in text
    assert "curl" not in text


def test_the_line_to_paste_is_one_line_and_quoted_for_a_shell() -> None:
    line = curl_example("http://h/v1", "sk-th-v1-api", "it's/a:model")
    assert "\n" not in line
    words = shlex.split(line)
    assert words[1] == "http://h/v1/chat/completions"
    assert json.loads(words[-1])["model"] == "it's/a:model"


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
    assert json.loads(banner_json(replace(FIRST, address=bound)))["address"] == shown
