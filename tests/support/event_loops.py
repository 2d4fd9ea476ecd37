"""The event loops under tests of what has to work on two of them."""

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest
import uvloop


def loops_for(definition: pytest.Function) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return uvloop, which the server runs on; in the soak also asyncio's own.

    A test with the fixture `loop_time` has asyncio's alone: uvloop's timers know no other time.
    """
    own, servers = {"asyncio": asyncio.new_event_loop}, {"uvloop": uvloop.new_event_loop}
    if "loop_time" in definition.fixturenames:
        return own
    return {**own, **servers} if "SOAK_DOSE" in os.environ else servers
