from collections.abc import Callable

import pytest

Problems = Callable[..., list[str]]

PRICING = "models[0].endpoints[0].pricing"
MODEL = """
models:
  - {id: a/b, context_length: 1, endpoints: [{provider: simulated, model: m, FIELD}]}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("servr: {}", "servr: there is no such setting; the nearest is 'server'"),
        ("server: {prot: 1}", "server.prot: there is no such setting; the nearest is 'port'"),
        ("server: {prot: }", "server.prot: there is no such setting; the nearest is 'port'"),
        (
            "providers: [{slug: a, kind: anthropic, apikey: k}]",
            "providers[0].apikey: there is no such setting; the nearest is 'api_key'",
        ),
        (
            MODEL.replace("FIELD", "pricng: free"),
            "models[0].endpoints[0].pricng: there is no such setting; the nearest is 'pricing'",
        ),
        (
            MODEL.replace("FIELD", "pricing: {prompt: 0, completion: 0, cache_read: 0}"),
            f"{PRICING}.cache_read: there is no such setting; the nearest is 'input_cache_read'",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_path_and_the_nearest(
    problems_of: Problems, text: str, line: str
) -> None:
    assert problems_of(text) == [line]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TOLLHOUSE_SERVER_PORT", "TOLLHOUSE_SERVER__PORT"),
        ("TOLLHOUSE_DATADIR", "TOLLHOUSE_DATA_DIR"),
        ("TOLLHOUSE_CONFIG_FILE", "TOLLHOUSE_CONFIG"),
        ("TOLLHOUSE_APIKEY", "TOLLHOUSE_API_KEY"),
        ("TOLLHOUSE_TESTS", None),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest(
    problems_of: Problems, name: str, near: str | None
) -> None:
    (problem,) = problems_of("", {name: "x"})
    assert problem.startswith(f"{name}: there is no such variable; the nearest is ")
    assert near is None or problem.endswith(near)


def test_all_problems_are_reported_together(problems_of: Problems) -> None:
    text = """
server: {prot: 1, port: x, host: "${NOWHERE}"}
providers: [{slug: a, slug: b, kind: c}]
models: [{id: a/b, context_length: 0, endpoints: [{provider: z, model: m}]}]
"""
    env = {"TOLLHOUSE_LOGGING__LEVEL": "loud", "TOLLHOUSE_NONSENSE": "1"}
    places = {line.partition(": ")[0] for line in problems_of(text, env)}
    assert places == {
        "line 3, column 23",
        "server.host",
        "server.port",
        "server.prot",
        "TOLLHOUSE_LOGGING__LEVEL",
        "providers[0].kind",
        "models[0].context_length",
        "models[0].endpoints[0].provider",
        "TOLLHOUSE_NONSENSE",
    }
