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
        description="Private or otherwise reserved networks that may be called. The addresses at "
        "which clouds give out credentials stay forbidden. Changes are in the audit record.",
    )
    extra_ca_file: Filled | None = Field(
        default=None,
        description="A PEM file with certificate authorities to trust besides the system's own. "
        "Changes are in the audit record.",
    )
    addresses: Listed[HostAddress] = Field(
        default=(),
        description="Fixed addresses of hosts, as host=address; no name server is asked for "
        "these hosts.",
    )


class EgressSettings(Section):
    """The egress proxy, and what one session of it may use."""

    user: Filled | None = Field(
        default=None,
        description="The user that the proxy runs as if the server runs as root.",
    )
    tunnel_hosts: Listed[HostName] = Field(
        default=(),
        description="Hosts whose TLS traffic passes through unread, so that no secret can be "
        "sent to them: for clients that pin certificates or speak only HTTP/2.",
    )
    allow_ports: Listed[HostPort] = Field(
        default=(),
        description="Ports other than 443 at which a host may receive the secrets bound to it, "
        "as host:port.",
    )
    max_connections: Whole = Field(
        default=256, ge=1, description="Connections that one session may hold open."
    )
    idle_seconds: Seconds = Field(
        default=300.0, description="After how many seconds without a byte a connection is closed."
    )
    total_seconds: Seconds = Field(
        default=3_600.0, description="After how many seconds any connection is closed."
    )
    bytes_per_minute: Whole = Field(
        default=1_073_741_824,
        ge=65_536,
        description="Bytes that one session may send and receive in a minute; beyond that its "
        "traffic is slowed down.",
    )
