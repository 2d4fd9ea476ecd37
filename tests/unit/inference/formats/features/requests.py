"""The features of requests in each format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.inference.formats.features.cache_control import CACHE_MARKS
from tests.unit.inference.formats.features.conversation import CONVERSATION
from tests.unit.inference.formats.features.files import FILES
from tests.unit.inference.formats.features.reasoning_requests import REASONING_REQUESTS
from tests.unit.inference.formats.features.response_format import RESPONSE_FORMAT
from tests.unit.inference.formats.features.sampling import SAMPLING
from tests.unit.inference.formats.features.tool_calls import TOOL_CALLS
from tests.unit.inference.formats.features.tools import TOOLS

if TYPE_CHECKING:
    from tests.unit.inference.formats.features.feature import RequestFeature

REQUESTS: dict[str, RequestFeature] = {
    **CONVERSATION,
    **FILES,
    **TOOLS,
    **TOOL_CALLS,
    **CACHE_MARKS,
    **REASONING_REQUESTS,
    **RESPONSE_FORMAT,
    **SAMPLING,
}
"""By name in the documentation."""
