"""The sections of outbound calls, the egress proxy, batches, the vault and interns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tollhouse.settings.fields import (
    ApiKey,
    BaseUrl,
    Filled,
    HookUrl,
    HostAddress,
    HostName,
    HostPort,
    InternUrl,
    Listed,
    Lowered,
    NetworkField,
    Seconds,
    Section,
    Whole,
)


class OutboundSettings(Section):
    """Which addresses may be called for somebody who names the host."""

    allow_networks: Listed[NetworkField] = ()
    """Private or otherwise reserved networks that may be called. The addresses at which clouds give
    out credentials stay forbidden. Changes are in the audit record."""
    extra_ca_file: Filled | None = None
    """A PEM file with certificate authorities to trust besides the system's own. Changes are in the
    audit record."""
    addresses: Listed[HostAddress] = ()
    """Fixed addresses of hosts, as host=address; no name server is asked for these hosts."""


class EgressSettings(Section):
    """The egress proxy, and what one session of it may use."""

    user: Filled | None = None
    """The user that the proxy runs as if the server runs as root."""
    tunnel_hosts: Listed[HostName] = ()
    """Hosts whose TLS traffic passes through unread, so that no secret can be sent to them: for
    clients that pin certificates or speak only HTTP/2."""
    allow_ports: Listed[HostPort] = ()
    """Ports other than 443 at which a host may receive the secrets bound to it, as host:port."""
    max_connections: Whole = Field(default=256, ge=1)
    """Connections that one session may hold open."""
    idle_seconds: Seconds = 300.0
    """After how many seconds without a byte a connection is closed."""
    total_seconds: Seconds = 3_600.0
    """After how many seconds any connection is closed."""
    bytes_per_minute: Whole = Field(default=1_073_741_824, ge=65_536)
    """Bytes that one session may send and receive in a minute; beyond that its traffic is slowed
    down."""


class BatchSettings(Section):
    """How large batches may be, and how they are run."""

    body_limit_bytes: Whole = Field(default=200_000_000, ge=1024)
    """Largest batch that can be submitted, in bytes."""
    item_limit_bytes: Whole | None = Field(default=None, ge=1024)
    """Largest body of one request of a batch, in bytes; server.body_limit_bytes if not given."""
    max_items: Whole = Field(default=50_000, ge=1)
    """Most requests in one batch."""
    window_hours: Whole = Field(default=24, ge=1, le=24 * 365)
    """How long a batch may run, in hours. Requests that have not begun by then are not run."""
    retention_days: Whole = Field(default=30, ge=1, le=3650)
    """How many days after its submission a batch's requests and results are kept."""
    submits_per_hour: Whole = Field(default=500, ge=1)
    """Batches that one account may submit in an hour."""
    max_open: Whole = Field(default=100, ge=1)
    """How many unfinished batches one account may have."""
    assumed_output_tokens: Whole = Field(default=1_000, ge=0)
    """Output tokens that a batch's estimate assumes for a request without `max_tokens`."""
    requests_per_provider: Whole = Field(default=64, ge=1)
    """Most batch requests that run at once at one provider for one model, all accounts together.
    The number begins at 8, grows with each answer and halves with each 429; while live requests
    run, a quarter of it is used."""
    chunks_at_once: Whole = Field(default=4, ge=1)
    """How many chunks (up to 500 requests of one batch) a process works on at once. An account none
    of whose chunks for a model is running gets one more."""
    part_seconds: Seconds = 2.0
    """How often finished results are stored. Those that were not stored yet when the process is
    killed are run again."""
    lease_seconds: Seconds = 30.0
    """After how many seconds without a sign of life a worker loses its chunk to another worker."""
    round_seconds: Seconds = 1.0
    """How often workers look for work of which no notification reached them."""


class BlobSettings(Section):
    """Where the requests and results of batches are stored: below the data folder, or in S3."""

    bucket: Filled | None = None
    """Bucket of an S3-compatible store. If not given, files in the data folder are used."""
    prefix: Filled | None = None
    """Text with which every key in the bucket begins."""
    endpoint: HookUrl | None = None
    """Address of the store; Amazon's if not given."""
    region: Filled | None = None
    """Region of the bucket; AWS_REGION if not given, or else us-east-1."""
    access_key_id: Filled | None = None
    """Access key id for the store; if not given, AWS_ACCESS_KEY_ID or the machine's role is
    used."""
    secret_access_key: ApiKey | None = None
    """The secret that belongs to blobs.access_key_id. Never shown."""


class VaultSettings(Section):
    """Where the keys are that secrets are sealed with, and what old secrets may do."""

    keys: Lowered[Literal["local", "settings", "command"]] = "local"
    """Where the key-encryption key is: `local` means a file in the data folder, `settings` means
    `vault.key`, `command` means the program `vault.command`."""
    key: ApiKey | None = None
    """For `vault.keys: settings`: the key-encryption key, 32 bytes in base64. Never shown."""
    previous_keys: Listed[ApiKey] = ()
    """Earlier key-encryption keys, which can still open what was sealed with them. Never shown."""
    command: Listed[Filled] = ()
    """For `vault.keys: command`: the program, with its arguments, that wraps and unwraps data
    keys."""
    command_seconds: Seconds = 5.0
    """How long that program may take for one key."""
    release_unbound: bool = False
    """Whether imported secrets that name no hosts may be sent to every host."""


_GIB = 1_073_741_824


class InternSettings(Section):
    """Interns: what runs their sandboxes, what each may use, how long it may take."""

    runtime: Lowered[Literal["bubblewrap", "process"]] = "bubblewrap"
    """What runs sandboxes. `process` isolates nothing: an intern may then do on this machine
    whatever the server may do. Use it only for development."""
    public_url: InternUrl | None = None
    """Address of each intern's daemon, with `{intern}` for the intern's id as its first label, such
    as `https://{intern}.interns.example.com`; it has to lead to the gateway. Without it, daemons
    are reached at the gateway's own address."""
    max_per_creator: Whole = Field(default=100, ge=1)
    """Interns that one user may have in a workspace."""
    chats_per_minute: Whole = Field(default=60, ge=1)
    """Prompts and answers to questions that one account may send to its interns in a minute."""
    invoke_seconds: Seconds = 3_600.0
    """How long a run may take that `POST /interns/{id}/invoke` has begun, or a chat service."""
    slack_url: BaseUrl = "https://slack.com/api/"
    """Address of Slack's Web API, for interns in Slack; GovSlack has another one."""
    first_user: Whole = Field(default=1_900_000_000, ge=1_000, le=2_147_000_000)
    """If the server runs as root: the number of the user that the first sandbox runs as. Each
    further sandbox takes the next number; no other user may have these numbers."""
    memory_bytes: Whole = Field(default=2 * _GIB, ge=134_217_728)
    """Memory of one sandbox, in bytes."""
    processes: Whole = Field(default=512, ge=32)
    """Processes and threads of one sandbox."""
    cpu_percent: Whole = Field(default=200, ge=1, le=100_000)
    """CPU time of one sandbox, in percent of one core: 200 is two cores."""
    disk_bytes: Whole = Field(default=10 * _GIB, ge=1_048_576)
    """Size of one workspace, in bytes."""
    files: Whole = Field(default=1_000_000, ge=1_000, le=2_000_000)
    """How many files and folders one workspace may have."""
    open_files: Whole = Field(default=4_096, ge=64)
    """How many files one process in a sandbox may have open."""
    boot_seconds: Seconds = 60.0
    """How long an intern may take to start. The time starts again while its files are being
    read."""
    boots_at_once: Whole = Field(default=4, ge=1)
    """How many interns start at the same time. Others wait; their waiting does not count as start
    time."""
    suspend_seconds: Seconds = 120.0
    """How long it may take to store the files of an intern that is suspended. The time starts again
    while they are being read."""
    destroy_seconds: Seconds = 600.0
    """How long deleting an intern may take. The time starts again while its archive is being
    written."""
    stop_seconds: Seconds = 5.0
    """How long the programs in a sandbox have to end by themselves before they are killed."""
    lease_seconds: Seconds = 30.0
    """After how many seconds without a sign of life from the server that manages an intern another
    server may take over."""
    away_seconds: Seconds = 120.0
    """After how many seconds without a sign of life from a machine its interns get the status
    failed."""
    round_seconds: Seconds = 2.0
    """How often the server looks for work of which no notification reached it."""
