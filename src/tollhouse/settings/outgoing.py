"""The settings of the ways out: which addresses may be called for others, and the egress proxy."""

from __future__ import annotations

from pydantic import Field

from tollhouse.settings.fields import (
    Filled,
    HostAddress,
    HostName,
    HostPort,
    Listed,
    NetworkField,
    Seconds,
    Whole,
)
from tollhouse.settings.section import Section


class OutboundSettings(Section):
    """Which addresses may be called for somebody who names the host."""

    allow_networks: Listed[NetworkField] = Field(
        default=(),
        description="Private or otherwise reserved networks that may be called all the same. "
        "Addresses at which clouds give out credentials never are. Written into the record.",
    )
    extra_ca_file: Filled | None = Field(
        default=None,
        description="A file of certificates, as PEM, of authorities that are trusted beside the "
        "system's own. Written into the record.",
    )
    addresses: Listed[HostAddress] = Field(
        default=(),
        description="Addresses of hosts that no name server is asked for, as host=address.",
    )


class EgressSettings(Section):
    """The egress proxy, and what one session of it may use."""

    user: Filled | None = Field(
        default=None,
        description="The user that the proxy runs as, where the server runs as root.",
    )
    tunnel_hosts: Listed[HostName] = Field(
        default=(),
        description="Hosts whose TLS is passed on unread, so that no secret reaches them: for "
        "clients that pin certificates or speak HTTP/2 alone.",
    )
    allow_ports: Listed[HostPort] = Field(
        default=(),
        description="Ports beside 443 at which a host receives the secrets that are bound to it, "
        "as host:port.",
    )
    max_connections: Whole = Field(
        default=256, ge=1, description="Connections that one session may hold open."
    )
    idle_seconds: Seconds = Field(
        default=300.0, description="After how long without a byte a connection is ended."
    )
    total_seconds: Seconds = Field(
        default=3_600.0, description="After how long any connection is ended."
    )
    bytes_per_minute: Whole = Field(
        default=1_073_741_824,
        ge=65_536,
        description="Bytes that one session may move in a minute, both ways together; what is "
        "beyond waits.",
    )
