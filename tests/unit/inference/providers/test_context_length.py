import pytest

from tests.support.seams.inference import too_long

OPENAI = (
    "This model's maximum context length is 128000 tokens. However, your messages resulted in "
    "130001 tokens. Please reduce the length of the messages."
)
VLLM = (
    "This model's maximum context length is 128000 tokens. However, you requested 130001 tokens "
    "(129001 in the messages, 1000 in the completion)."
)
GOOGLE = "The input token count (130001) exceeds the maximum number of tokens allowed (128000)."


@pytest.mark.parametrize(
    "said", [OPENAI, VLLM, GOOGLE, "prompt is too long: 130001 tokens > 128000 maximum"]
)
def test_the_numbers_are_the_providers(said: str) -> None:
    assert too_long(said, 5, 10).startswith("prompt is too long: 130001 tokens > 128000 maximum. ")


@pytest.mark.parametrize(("estimate", "shown"), [(130_001, 130_001), (5, 128_001)])
def test_without_any_they_are_an_estimate_above_the_models(estimate: int, shown: int) -> None:
    text = too_long("Your input exceeds the limit.", estimate, 128_000)
    assert text.startswith(f"prompt is too long: {shown} tokens > 128000 maximum. ")


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 130001 tokens > 128000 maximum",
        "exceeds the context window",
        "this model's maximum context length is 128000 tokens",
        "Acme refused it.",
    ],
)
def test_every_client_finds_the_words_that_it_looks_for(words: str) -> None:
    """Claude Code and langchain-anthropic; langchain-openai; LiteLLM, CrewAI and Cline; people."""
    assert words in too_long("Acme refused it.", 130_001, 128_000)
