# shellcheck shell=bash
# Which engines really work: each is made to run a program before it counts.
# The finding lies in RIG/status/ENGINE: "ok", or the reason why not.

engine_cli() { # ENGINE ARG...
    local engine=$1
    shift
    case $engine in
        docker) docker "$@" ;;
        podman) podman "$@" ;;
        podman-rootless) as_user podman "$@" ;;
        docker-rootless) rootless_docker "$@" ;;
    esac
}

probe_engines() {
    local engine probes=()
    for engine in "${ALL_ENGINES[@]}"; do
        echo 'the probe did not finish' >"$RIG/status/$engine"
        probe "$engine" >"$RIG/logs/probe-$engine.log" 2>&1 </dev/null {LOCK}>&- &
        probes+=($!)
    done
    # By pid: a bare `wait` would wait for the daemons as well.
    wait "${probes[@]}" || true
}

probe() { # ENGINE; runs in the background
    local reason
    reason=$(unavailable "$1")
    if [ -z "$reason" ] && ! run_true "$1"; then
        reason=$(last_line "$RIG/logs/probe-$1.log")
    fi
    echo "${reason:-ok}" >"$RIG/status/$1"
}

run_true() { # ENGINE
    case $1 in
        native) as_user unshare -Ur true ;;
        kubernetes) run_true_in_pod ;;
        podman-rootless) load_images "$1" && run_true_as_host_user ;;
        *) load_images "$1" && engine_cli "$1" run --rm localhost/sandpen-test true ;;
    esac
}

# Podman copies an image the first time it is used with a new mapping of ids.
# Done here, the copying does not fall on the first test.
run_true_as_host_user() {
    local uid gid
    uid=$(id -u "$TEST_USER") gid=$(id -g "$TEST_USER")
    as_user podman run --rm --userns="keep-id:uid=$uid,gid=$gid" --user "$uid:$gid" localhost/sandpen-test true
}

# What can be said without trying.
unavailable() { # ENGINE
    case $1 in
        docker)
            has docker || { echo 'docker is not installed'; return; }
            docker ps >/dev/null || no_daemon docker dockerd ;;
        docker-rootless)
            has docker || { echo 'docker is not installed'; return; }
            rootless_docker ps >/dev/null || no_daemon docker-rootless rootless-dockerd ;;
        podman)
            has podman || { echo 'podman is not installed'; return; }
            is_root || echo 'rootful Podman needs root' ;;
        podman-rootless)
            has podman || echo 'podman is not installed' ;;
        kubernetes) kubernetes_unavailable ;;
    esac
}

no_daemon() { # ENGINE DAEMON
    if is_root && [ -s "$RIG/logs/$2.log" ]; then
        echo "$2 does not start: $(last_line "$RIG/logs/$2.log")"
    else
        last_line "$RIG/logs/probe-$1.log"
    fi
}

last_line() { awk 'NF { line = $0 } END { print substr(line, 1, 300) }' "$1"; }

working_engines() {
    local engine working=()
    for engine in "${ALL_ENGINES[@]}"; do
        [ "$(cat "$RIG/status/$engine")" != ok ] || working+=("$engine")
    done
    (IFS=,; echo "${working[*]}")
}

report_engines() {
    local engine
    for engine in "${ALL_ENGINES[@]}"; do
        say "$engine: $(cat "$RIG/status/$engine")"
    done
}
