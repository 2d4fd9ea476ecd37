import pytest

from tollhouse.accounting.types import Charge, CostState, Usage
from tollhouse.inference.formats.registry import FORMATS, Adapters
from tollhouse.inference.types import Dialect, ReplyIdentity
from tollhouse.kernel.errors import Bug, ProviderUnavailable

IDENTITY = ReplyIdentity("gen-1", "m", "Acme", 1)
CHARGE = Charge(CostState.UNKNOWN, Usage(), 0, None, None)


def adapters() -> Adapters:
    return FORMATS["/chat/completions"].parse(
        b'{"model":"m","messages":[{"role":"user"}]}', {}, b""
    )


@pytest.mark.parametrize(
    ("dialect", "name"),
    [(Dialect.CHAT, "ChatStream"), (Dialect.MESSAGES, "TranslatedStream")],
)
def test_a_stream_ends_once(dialect: Dialect, name: str) -> None:
    stream = adapters()[dialect].open_stream(IDENTITY)
    stream.end(CHARGE)

    with pytest.raises(Bug, match=f"a {name} was ended twice"):
        stream.end(CHARGE)
    with pytest.raises(Bug, match=f"a {name} was ended twice"):
        stream.fail(ProviderUnavailable("x", provider_name="Acme"))
