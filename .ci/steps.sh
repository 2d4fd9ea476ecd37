# What the scripts beside it share. It is sourced: `prepare SECONDS`, then one `step` after the other,
# then `report`. Every step runs, so that one failure does not hide the next.
# shellcheck shell=bash

grace=30  # seconds for a step that was told to end: pytest then lists what failed so far
failed=()

# Installs what the machine lacks; asks Debian nothing when it lacks nothing.
install_debian_packages() {
    local python=${PYTHON:-python3} missing=()
    command -v git >/dev/null || missing+=(git)
    command -v make >/dev/null || missing+=(make)
    command -v bwrap >/dev/null || missing+=(bubblewrap)  # makes the sandboxes of interns
    command -v curl >/dev/null || missing+=(curl)  # one of the programs behind the egress proxy
    command -v ip >/dev/null || missing+=(iproute2)  # brings loopback up in the tests' namespace
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    ((${#missing[@]})) || return 0
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "${missing[@]}"
    else
        echo "missing, and not installed without root and apt-get: ${missing[*]}" >&2
    fi
}

# Runs a command where no network but loopback exists, if this machine lets us make such a place.
isolated() {
    # shellcheck disable=SC2016  # "$@" belongs to the inner shell
    unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$@"
}

# prepare SECONDS [TARGET...]: installs what the steps need, which then have so many seconds together.
prepare() {
    install_debian_packages
    export TOLLHOUSE_REQUIRE_CURL=1  # a program that a test needs and does not find fails it
    export TOLLHOUSE_REQUIRE_SANDBOX=1  # the same, for sandboxes that cannot be made
    make setup-dev clients "${@:2}"  # the last thing that needs a package registry
    if isolated true 2>/dev/null; then
        alone=isolated
        echo 'tests run in a network namespace that has only loopback'
    else
        alone=env
        echo 'no network namespace here: tests run on the network of this machine'
    fi
    deadline=$((SECONDS + $1 - grace))
}

step() {  # step COMMAND...: runs a command in what is left of the time, remembers if it failed
    local left=$((deadline - SECONDS))
    printf '\n==> %s\n' "$*"
    "$alone" timeout --signal=INT --kill-after="$grace" "$((left > 0 ? left : 1))" "$@" || failed+=("$*")
}

report() {
    ((${#failed[@]})) || return 0
    printf '\nfailed: %s\n' "${failed[@]}" >&2
    exit 1
}
