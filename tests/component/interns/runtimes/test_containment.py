"""What a sandbox by bubblewrap contains: each test tries it from inside."""

# ruff: noqa: S108 - the /tmp of a sandbox is its own
# ruff: noqa: F821 - functions that run inside see what `inside.PRELUDE` imports
import os
import socket
import stat
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tollhouse
from tests.component.interns.runtimes.sandbox_runner import SandboxedCall, SandboxRunner

pytestmark = pytest.mark.sandbox


@contextmanager
def listening(address: str | Path) -> Iterator[socket.socket]:
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind(str(address) if isinstance(address, Path) else (address, 0))
        listener.listen()
        yield listener


def attempts(*paths: str) -> dict[str, str]:
    """Try to read paths inside; return what came of it."""
    found = {}
    for path in paths:
        try:
            is_folder = Path(path).is_dir()
            found[path] = str(list(Path(path).iterdir()) if is_folder else Path(path).read_bytes())
        except OSError as error:
            found[path] = errno.errorcode[error.errno]
    return found


# ------------------------------------------------------------------------------------- identity


def test_it_is_nobody_of_the_host(sandbox: SandboxedCall) -> None:
    def who() -> dict[str, Any]:
        status = Path("/proc/self/status").read_text()
        return {
            "ids": [os.getuid(), os.getgid(), os.getgroups()],
            "status": dict(line.split(":\t", 1) for line in status.splitlines()),
            "users": Path("/etc/passwd").read_text().splitlines(),
        }

    found = sandbox.ask(who)
    assert found["ids"] == [1000, 1000, []] or os.geteuid() != 0
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found["status"][capabilities], 16) == 0, capabilities
    assert found["status"]["NoNewPrivs"] == "1"
    assert found["status"]["Seccomp"] == "2"
    assert [line.split(":")[0] for line in found["users"]] == ["intern"]


@pytest.mark.root  # who alone can start it as another user
async def test_started_by_root_each_is_a_user_of_its_own(boxes: SandboxRunner) -> None:
    def writes() -> None:
        Path("mine").touch()

    one, other = await boxes.run(writes), await boxes.run(writes)
    await one.result()
    await other.result()
    owners = [(each.workspace / "mine").stat().st_uid for each in (one, other)]
    assert owners == [one.launch.user, other.launch.user]
    assert len({0, *owners}) == 3


def test_programs_with_more_rights_give_none(sandbox: SandboxedCall) -> None:
    def run() -> list[Any]:
        copied = Path("root-shell")
        copied.write_bytes(Path("/bin/true").read_bytes())
        with contextlib.suppress(OSError):
            copied.chmod(0o4755)
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        places = [line.split()[4] for line in mounts if "nosuid" not in line.split()[5]]
        su = subprocess.run(["/bin/su", "-c", "id"], capture_output=True, check=False)
        return [places, su.returncode]

    without_nosuid, code = sandbox.ask(run)
    assert without_nosuid == []
    assert code != 0


# ------------------------------------------------------------------------------------- files


def test_nothing_of_the_server_can_be_read(sandbox: SandboxedCall) -> None:
    package = Path(tollhouse.__file__).parent
    site = sysconfig.get_path("purelib")
    found = sandbox.ask(
        attempts,
        *("/etc/shadow", "/etc/hostname", "/home", "/var", "/sys", "/boot", "/root/.ssh"),
        *(
            str(sandbox.launch.workspace.parents[1] / "secret"),
            str(package / "settings"),
            f"{site}/tollhouse/settings",
        ),
        *("/run/tollhouse/tollhouse/settings", "/run/tollhouse/tollhouse/interns/runtimes"),
    )
    assert set(found.values()) <= {"ENOENT", "EACCES"}, found


def test_of_roots_folder_nothing_is_seen_but_python(sandbox: SandboxedCall) -> None:
    def files() -> list[str]:
        walked = os.walk("/root", onerror=None)
        return [str(Path(top, name)) for top, _, names in walked for name in names]

    bases = (sys.base_prefix, sys.prefix)
    assert all(each.startswith(bases) for each in sandbox.ask(files))


def test_the_daemon_is_all_that_it_sees_of_the_gateway(sandbox: SandboxedCall) -> None:
    def imports() -> list[str]:
        sys.path.insert(0, "/run/tollhouse")
        import tollhouse.sandbox.daemon as daemon  # noqa: PLC0415, PLR0402 - inside

        found = []
        for name in ("tollhouse.settings", "tollhouse.kernel.clock", "tollhouse.interns.runtimes"):
            try:
                __import__(name)
            except ImportError:
                continue
            found.append(name)
        return [daemon.__file__, *found]

    assert sandbox.ask(imports) == ["/run/tollhouse/tollhouse/sandbox/daemon/__init__.py"]


def test_the_packages_of_the_server_can_be_imported(sandbox: SandboxedCall) -> None:
    def imports() -> str:
        import uvicorn  # noqa: PLC0415 - inside

        return uvicorn.__name__

    assert sandbox.ask(imports) == "uvicorn"


async def test_only_the_workspace_and_small_folders_can_be_written(boxes: SandboxRunner) -> None:
    """In a sandbox of its own: `mount`, which another test tries, makes `/run/mount`."""

    def writable() -> list[str]:
        found = []
        skipped = ("/proc", "/usr", "/root", "/tmp/")
        for top, names, _ in os.walk("/"):
            names[:] = [n for n in names if not str(Path(top, n)).startswith(skipped)]
            try:
                Path(top, ".try").touch()
            except OSError:
                continue
            found.append(top)
        return sorted(each for each in found if not each.startswith("/tmp"))

    assert await boxes.call(writable) == ["/dev/shm", "/run", "/workspace"]


def test_what_is_in_memory_is_small(sandbox: SandboxedCall) -> None:
    def sizes() -> dict[str, int]:
        found = {}
        for path in ("/tmp", "/run", "/dev/shm"):
            status = os.statvfs(path)
            found[path] = status.f_blocks * status.f_frsize
        return found

    found = sandbox.ask(sizes)
    assert sum(found.values()) < sandbox.launch.limits.memory_bytes, found


def test_the_way_out_cannot_be_swapped(sandbox: SandboxedCall) -> None:
    def swaps() -> list[str]:
        found = []
        certificate, folder = Path("/run/egress/ca.pem"), Path("/run/egress")
        for attempt in (
            lambda: certificate.write_text("mine"),
            certificate.unlink,
            lambda: certificate.rename("/run/egress/other"),
            lambda: Path("/run/egress/proxy.sock").symlink_to("/workspace/mine"),
            lambda: folder.rename("/run/elsewhere"),
            lambda: folder.chmod(0o777),
            lambda: Path("/run/tollhouse").rename("/run/elsewhere"),
        ):
            try:
                attempt()
            except OSError as error:
                found.append(errno.errorcode[error.errno])
        return found

    assert len(sandbox.ask(swaps)) == 7
    assert (sandbox.launch.egress / "ca.pem").read_text() == "certificate"
    assert stat.S_IMODE(sandbox.launch.egress.stat().st_mode) == 0o700


def test_devices_are_few_and_none_of_the_hosts(sandbox: SandboxedCall) -> None:
    def devices() -> list[str]:
        return sorted(each.name for each in Path("/dev").iterdir())

    links = {"core", "fd", "stdin", "stdout", "stderr", "ptmx"}
    wanted = {"full", "null", "pts", "random", "shm", "tty", "urandom", "zero"}
    assert set(sandbox.ask(devices)) - links == wanted


# ------------------------------------------------------------------------------------- network


def test_no_other_host_is_reached(sandbox: SandboxedCall) -> None:
    def reach(port: int) -> dict[str, str]:
        found = {}
        for address in (("127.0.0.1", port), ("169.254.169.254", 80), ("192.0.2.1", 443)):
            with socket.socket() as client:
                client.settimeout(5)
                try:
                    client.connect(address)
                    found[address[0]] = "connected"
                except OSError as error:
                    found[address[0]] = errno.errorcode.get(error.errno, str(error))
        return found

    with listening("127.0.0.1") as host:
        found = sandbox.ask(reach, host.getsockname()[1])
    assert found == {
        "127.0.0.1": "ECONNREFUSED",
        "169.254.169.254": "ENETUNREACH",
        "192.0.2.1": "ENETUNREACH",
    }


def test_names_do_not_resolve(sandbox: SandboxedCall) -> None:
    def resolve() -> str:
        try:
            return str(socket.getaddrinfo("example.com", 443))
        except socket.gaierror as error:
            return type(error).__name__

    assert sandbox.ask(resolve) == "gaierror"


def test_loopback_is_all_there_is_and_works(sandbox: SandboxedCall) -> None:
    def loopback() -> list[str]:
        with socket.create_server(("127.0.0.1", 3128)) as server:
            socket.create_connection(server.getsockname()).close()
        return [name for _, name in socket.if_nameindex()]

    assert sandbox.ask(loopback) == ["lo"]


def test_abstract_and_named_sockets_of_others_are_out_of_reach(sandbox: SandboxedCall) -> None:
    def connect(*paths: str) -> list[str]:
        found = []
        for path in paths:
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(path.replace("@", "\0"))
                    found.append("connected")
                except OSError as error:
                    found.append(errno.errorcode[error.errno])
        return found

    abstract = f"tollhouse-test-{os.getpid()}"
    named = sandbox.launch.egress.with_name("p")
    with listening(named), socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(f"\0{abstract}")
        hidden.listen()
        found = sandbox.ask(connect, f"@{abstract}", str(named), "/run/egress/../../p")
    assert set(found) <= {"ECONNREFUSED", "ENOENT"}, found


def test_its_own_way_out_can_be_connected_to(sandbox: SandboxedCall) -> None:
    def connect() -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("/run/egress/p")
        return "connected"

    launch = sandbox.launch
    # The path as a whole may be longer than a socket's may be.
    folder = os.open(launch.egress, os.O_RDONLY)
    with listening(Path(f"/proc/self/fd/{folder}/p")):
        (launch.egress / "p").chmod(0o600)
        if os.geteuid() == 0:  # the proxy's socket is its intern's
            os.chown(launch.egress / "p", launch.user, launch.user)
        assert sandbox.ask(connect) == "connected"
    os.close(folder)
    (launch.egress / "p").unlink()


def test_raw_and_foreign_sockets_are_refused(sandbox: SandboxedCall) -> None:
    def make() -> dict[str, str]:
        found = {}
        for name, arguments in {
            "raw": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
            "raw6": (socket.AF_INET6, socket.SOCK_RAW, 58),
            "ping": (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
            "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
            "vsock": (40, socket.SOCK_STREAM, 0),
            "crypto": (38, socket.SOCK_SEQPACKET, 0),
            "netfilter": (16, socket.SOCK_RAW, 12),
            "audit": (16, socket.SOCK_RAW, 9),
        }.items():
            try:
                socket.socket(*arguments).close()
                found[name] = "made"
            except OSError as error:
                found[name] = errno.errorcode[error.errno]
        return found

    found = sandbox.ask(make)
    assert {found.pop(name) for name in ("raw", "raw6", "ping")} == {"EPERM"}
    assert set(found.values()) == {"EAFNOSUPPORT"}, found


# ------------------------------------------------------------------------------------- kernel


def test_new_namespaces_and_mounts_are_refused(sandbox: SandboxedCall) -> None:
    def programs() -> list[int]:
        return [
            subprocess.run(words, capture_output=True, check=False).returncode
            for words in (
                ["unshare", "--user", "true"],
                ["unshare", "--map-root-user", "--mount", "true"],
                ["unshare", "--net", "true"],
                ["mount", "-t", "tmpfs", "none", "/tmp"],
                ["mount", "--bind", "/usr", "/tmp"],
                ["umount", "/run/egress"],
                ["mount", "-o", "remount,rw", "/"],
                ["chroot", "/", "true"],
                ["nsenter", "-t", "1", "-a", "true"],
            )
        ]

    assert 0 not in sandbox.ask(programs)


def test_calls_that_no_intern_needs_are_refused(sandbox: SandboxedCall) -> None:
    def call() -> dict[str, str]:
        libc = ctypes.CDLL(None, use_errno=True)
        numbers = {
            "x86_64": {"ptrace": 101, "keyctl": 250, "bpf": 321, "perf": 298, "userfaultfd": 323},
            "aarch64": {"ptrace": 117, "keyctl": 219, "bpf": 280, "perf": 241, "userfaultfd": 282},
        }[os.uname().machine] | {"io_uring": 425, "clone3": 435, "unknown": 9999, "fsopen": 430}
        found = {}
        for name, number in numbers.items():
            libc.syscall(number, 0, 0, 0, 0, 0)
            found[name] = errno.errorcode[ctypes.get_errno()]
        return found

    found = sandbox.ask(call)
    assert {found.pop("clone3"), found.pop("unknown")} == {"ENOSYS"}
    assert set(found.values()) == {"EPERM"}, found


def test_threads_and_children_are_made_without_clone3(sandbox: SandboxedCall) -> None:
    def work() -> list[str]:
        done = []
        thread = threading.Thread(target=lambda: done.append("thread"))
        thread.start()
        thread.join()
        child = subprocess.run(["echo", "child"], capture_output=True, check=True)
        done.append(child.stdout.decode())
        return done

    assert sandbox.ask(work) == ["thread", "child\n"]


def test_a_terminal_is_typed_into_by_nobody(sandbox: SandboxedCall) -> None:
    def push() -> list[str]:
        _, end = os.openpty()
        found = []
        for request in (0x5412, 0x541C, 0x5412 | 1 << 32):
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ioctl(end, ctypes.c_ulong(request), b"x")
            found.append(errno.errorcode[ctypes.get_errno()])
        return found

    assert sandbox.ask(push) == ["EPERM"] * 3


def test_no_process_of_the_host_is_seen_or_killed(sandbox: SandboxedCall) -> None:
    def look(server: int) -> list[Any]:
        seen = sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())
        try:
            os.kill(server, 0)
        except ProcessLookupError:
            return [seen, "gone"]
        return [seen, "there"]

    seen, server = sandbox.ask(look, os.getpid())
    assert seen == [1, 2]
    assert server == "gone"


def test_its_init_leads_nowhere(sandbox: SandboxedCall) -> None:
    def look() -> list[str]:
        outside = ("/proc/1/root/data", "/proc/1/cwd/../../etc/shadow", "/proc/1/root/sys")
        found = [str(Path(path).exists()) for path in outside]
        held = [str(each.readlink()) for each in Path("/proc/1/fd").iterdir()]
        return [*found, *(each for each in held if each.startswith("/") and each != "/dev/null")]

    assert sandbox.ask(look) == ["False"] * 3


def test_control_groups_are_out_of_reach(sandbox: SandboxedCall) -> None:
    def look() -> list[Any]:
        mounts = Path("/proc/self/mountinfo").read_text()
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        groups = {line.split(":", 2)[2] for line in lines}
        return ["cgroup" in mounts, sorted(groups)]

    assert sandbox.ask(look) == [False, ["/"]]


def test_its_host_name_is_its_own(sandbox: SandboxedCall) -> None:
    def name() -> str:
        return os.uname().nodename

    assert sandbox.ask(name) == sandbox.launch.name
