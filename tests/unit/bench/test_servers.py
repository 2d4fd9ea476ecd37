"""How the gateways of a comparison are configured."""

from pathlib import Path

import pytest
import yaml

from bench.processes import BenchError
from bench.servers import Tree, write_config


def test_settings_of_a_checkout_are_given_by_their_dotted_names(tmp_path: Path) -> None:
    more = {"server.inference_driver": "tasks", "vault": {"keep": 3}}
    settings = yaml.safe_load(write_config(tmp_path / "a.yaml", None, more).read_text())
    assert settings["server"]["inference_driver"] == "tasks"
    assert settings["server"]["max_connections_per_address"]
    assert settings["vault"] == {"keep": 3}


def test_a_checkout_without_an_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="make setup"):
        Tree.at(tmp_path, {})
