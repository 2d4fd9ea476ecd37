"""A problem of the configuration file names the line that it is about."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tollhouse.settings.problems import ConfigError
from tollhouse.settings.sections import Settings

Load = Callable[..., Settings]
Placed = Callable[..., list[str]]

MODELS = """\
providers:
  - slug: acme
    kind: openai_compatible
    base_url: https://llm.acme.example/v1
models:
  - id: acme/large
    context_length: 128000
    endpoints:
      - pricing: free
        model: large
        provider: {provider}
"""


@pytest.fixture
def placed(load_text: Load, tmp_path: Path) -> Placed:
    """Return the lines of the error, the file's folder taken off."""

    def _placed(text: str, env: Mapping[str, str] | None = None) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_text(text, env)
        return [line.removeprefix(f"{tmp_path}/") for line in caught.value.lines]

    return _placed


def test_a_provider_that_does_not_exist_is_named_with_its_line(placed: Placed) -> None:
    (line,) = placed(MODELS.format(provider="acmee"))
    assert line == (
        "config.yaml:11: models[0].endpoints[0].provider: "
        "no provider is called 'acmee'; the nearest is 'acme'"
    )


def test_an_unknown_setting_is_named_with_the_line_of_its_name(placed: Placed) -> None:
    assert placed("server:\n  port: 1\n  prot:\n    2\n") == [
        "config.yaml:3: server.prot: there is no such setting; the nearest is 'port'"
    ]


def test_a_missing_setting_is_named_with_the_line_of_its_section(placed: Placed) -> None:
    text = MODELS.format(provider="acme").replace("    context_length: 128000\n", "")
    assert placed(text) == ["config.yaml:6: models[0].context_length: is required"]


def test_an_unset_variable_is_named_with_the_line_that_refers_to_it(placed: Placed) -> None:
    assert placed("logging: {level: info}\ndata_dir: ${NOWHERE}\n") == [
        "config.yaml:2: data_dir: refers to the environment variable NOWHERE, which is not set"
    ]


def test_a_merged_setting_is_named_with_the_line_where_it_is_written(placed: Placed) -> None:
    text = """\
providers:
  - &first
    slug: acme
    kind: anthropic
    idle: 1
  - <<: *first
    slug: other
"""
    places = [line.partition(": there is")[0] for line in placed(text)]
    assert places == ["config.yaml:5: providers[0].idle", "config.yaml:5: providers[1].idle"]


def test_a_problem_of_the_environment_names_no_line_of_the_file(placed: Placed) -> None:
    assert placed("server:\n  port: 1\n", {"TOLLHOUSE_SERVER__PORT": "70000"}) == [
        "TOLLHOUSE_SERVER__PORT: must be at most 65535"
    ]
