"""Attacks on the proxy by what they attack with; importing them all fills the table."""

from tests.integration.vault.egress.attacks import (
    answers,
    destinations,
    exhaustion,
    hosts,
    requests,
)
from tests.integration.vault.egress.attacks.table import ATTACKS

__all__ = ["ATTACKS", "answers", "destinations", "exhaustion", "hosts", "requests"]
