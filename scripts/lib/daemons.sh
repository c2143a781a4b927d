# shellcheck shell=bash
# Background processes of the rig: started at most once, and stopped only while
# they are provably the ones that were started.

# A pid alone may have been given to another process since; pid and start time
# together name one process of this boot.
start_time() { # PID; fails if it has ended, even if nobody has collected it yet
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name in parentheses may hold spaces: the state, field 3, is the first
    # after it, and the start time, field 22, the 20th.
    awk '$1 == "Z" { exit 1 } { print $20 }' <<<"${stat##*) }"
}

record_daemon() { # NAME PID
    start_time "$2" >"$RIG/$1.start" || return 0
    echo "$2" >"$RIG/$1.pid"
}

forget_daemon() { rm -f "$RIG/$1.pid" "$RIG/$1.start"; }

daemon_runs() { # NAME
    local started
    [ -e "$RIG/$1.pid" ] && started=$(start_time "$(cat "$RIG/$1.pid")") &&
        [ "$started" = "$(cat "$RIG/$1.start")" ]
}

# setsid: Ctrl-C in the terminal of the tests must not reach the daemon before
# the tests have cleaned up. The lock is closed, or it would be held for good.
start_daemon() { # NAME CMD [ARG...]
    local name=$1
    shift
    setsid "$@" >"$RIG/logs/$name.log" 2>&1 </dev/null {LOCK}>&- &
    record_daemon "$name" $!
}

stop_daemon() { # NAME
    if daemon_runs "$1"; then
        local pid tries=0
        pid=$(cat "$RIG/$1.pid")
        kill "$pid"
        # dockerd gives its containers 15 s.
        while daemon_runs "$1"; do
            tries=$((tries + 1))
            [ "$tries" -lt 300 ] || { say "$1 ($pid) ignores SIGTERM, killing it"; kill -9 "$pid"; break; }
            sleep 0.1
        done
    fi
    forget_daemon "$1"
}

wait_until_answers() { # NAME CMD [ARG...]
    local name=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -ge 300 ] || ! daemon_runs "$name"; then
            say "$name does not answer, see $RIG/logs/$name.log"
            return 1
        fi
        sleep 0.2
    done
}

boot_id() { cat /proc/sys/kernel/random/boot_id; }
same_boot() { [ "$(cat "$RIG/boot-id" 2>/dev/null)" = "$(boot_id)" ]; }

# Pids and sockets of an earlier boot mean nothing. A real runtime directory is
# on a tmpfs and vanishes by itself; this one has to be emptied.
forget_other_boots() {
    same_boot && return
    rm -rf "$RIG"/*.pid "$RIG"/*.start "$RIG/run-user" "$RIG/env"
    boot_id >"$RIG/boot-id"
}

start_docker() {
    has docker || return 0
    if docker info >/dev/null 2>&1; then
        daemon_runs dockerd || forget_daemon dockerd
        return 0
    fi
    is_root && has dockerd || return 0
    say 'starting dockerd'
    remove_stale_pidfiles /var/run/docker.pid /var/run/docker
    start_daemon dockerd dockerd
    wait_until_answers dockerd docker info || stop_daemon dockerd
}

# A killed dockerd leaves pid files behind, and its successor gives up while
# /proc still lists those pids: for seconds where init is slow to collect the
# dead, or for good if a pid was given away.
remove_stale_pidfiles() { # DOCKERD_PIDFILE EXEC_ROOT
    remove_unless_running "$1" dockerd
    remove_unless_running "$2/containerd/containerd.pid" containerd
}

remove_unless_running() { # PIDFILE PROGRAM
    [ -e "$1" ] || return 0
    local pid
    pid=$(cat "$1")
    if start_time "$pid" >/dev/null && [ "$(cat "/proc/$pid/comm")" = "$2" ]; then return; fi
    rm -f "$1"
}

# Debian ships the start script, but not in PATH.
rootless_start_script() {
    local script
    for script in "$(command -v dockerd-rootless.sh)" /usr/share/docker.io/contrib/dockerd-rootless.sh; do
        [ -x "$script" ] && echo "$script" && return
    done
    return 1
}

rootless_docker() { as_user env DOCKER_HOST="$ROOTLESS_DOCKER_HOST" docker "$@"; }

start_rootless_docker() {
    local script state=$TEST_RUNTIME/dockerd-rootless
    ROOTLESS_DOCKER_HOST=unix://$TEST_RUNTIME/docker.sock
    has docker || return 0
    if rootless_docker info >/dev/null 2>&1; then return 0; fi
    script=$(rootless_start_script) && is_root && has rootlesskit || return 0
    say 'starting rootless dockerd'
    stop_daemon rootless-dockerd
    rm -rf "$state"
    remove_stale_pidfiles "$TEST_RUNTIME/docker.pid" "$TEST_RUNTIME/docker"
    make_user_dir "$RIG/docker-user" 0700
    # A state directory of our own: the default is a new one in /tmp each time.
    start_daemon rootless-dockerd "$RIG/as-user" \
        env DOCKERD_ROOTLESS_ROOTLESSKIT_FLAGS="--state-dir=$state" \
        "$script" --data-root "$RIG/docker-user" --exec-root "$TEST_RUNTIME/docker" \
        --pidfile "$TEST_RUNTIME/docker.pid" --host "$ROOTLESS_DOCKER_HOST"
    wait_until_answers rootless-dockerd rootless_docker info || stop_daemon rootless-dockerd
}

# Rootless Podman leaves a process behind that keeps its user namespace. In a
# runtime directory that is not the rig's own, it may be somebody else's.
record_podman_pause() {
    local pid
    pid=$(cat "$RIG/run-user/libpod/tmp/pause.pid" 2>/dev/null) || return 0
    record_daemon podman-pause "$pid"
}
