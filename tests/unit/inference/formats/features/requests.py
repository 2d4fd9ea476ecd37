"""What a request may ask, in the words of each format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.inference.formats.features.answer import ANSWER
from tests.unit.inference.formats.features.cache import CACHE_MARKS
from tests.unit.inference.formats.features.calls import CALLS
from tests.unit.inference.formats.features.conversation import CONVERSATION
from tests.unit.inference.formats.features.files import FILES
from tests.unit.inference.formats.features.sampling import SAMPLING
from tests.unit.inference.formats.features.thinking import THINKING
from tests.unit.inference.formats.features.tools import TOOLS

if TYPE_CHECKING:
    from tests.unit.inference.formats.features.feature import RequestFeature

REQUESTS: dict[str, RequestFeature] = {
    **CONVERSATION,
    **FILES,
    **TOOLS,
    **CALLS,
    **CACHE_MARKS,
    **THINKING,
    **ANSWER,
    **SAMPLING,
}
"""By their names in the documentation."""
