# shellcheck shell=bash
# Starts the daemons of the rig, and stops only those that it started.

# A pid may be reused; pid and start time together identify a process of this boot.
start_time() { # PID; fails if the process has exited or is a zombie
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name in parentheses may contain spaces. After it, the state (field 3) is
    # the first field, and the start time (field 22) the 20th.
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

# setsid keeps Ctrl-C in the tests' terminal from stopping the daemon before the
# tests have cleaned up. The lock is closed, because the daemon would keep it.
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
        # dockerd waits up to 15 s for its containers.
        while daemon_runs "$1"; do
            tries=$((tries + 1))
            [ "$tries" -lt 300 ] || { say "$1 (pid $pid) did not exit after SIGTERM; killing it"; kill -9 "$pid"; break; }
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
            say "$name did not start, see $RIG/logs/$name.log"
            return 1
        fi
        sleep 0.2
    done
}

boot_id() { cat /proc/sys/kernel/random/boot_id; }
same_boot() { [ "$(cat "$RIG/boot-id" 2>/dev/null)" = "$(boot_id)" ]; }

# Removes pids and sockets of an earlier boot. The runtime directory is not on a
# tmpfs, so it is still there after a reboot.
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

# A killed dockerd leaves pid files. A new dockerd refuses to start while these
# pids exist: until init has reaped the old processes, or if a pid is reused.
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

# Debian installs the start script outside PATH.
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
    # By default every start creates a new state directory in /tmp.
    start_daemon rootless-dockerd "$RIG/as-user" \
        env DOCKERD_ROOTLESS_ROOTLESSKIT_FLAGS="--state-dir=$state" \
        "$script" --data-root "$RIG/docker-user" --exec-root "$TEST_RUNTIME/docker" \
        --pidfile "$TEST_RUNTIME/docker.pid" --host "$ROOTLESS_DOCKER_HOST"
    wait_until_answers rootless-dockerd rootless_docker info || stop_daemon rootless-dockerd
}

# Rootless Podman keeps a process running that holds its user namespace. Only the
# one in the rig's runtime directory is recorded: others may not belong to the rig.
record_podman_pause() {
    local pid
    pid=$(cat "$RIG/run-user/libpod/tmp/pause.pid" 2>/dev/null) || return 0
    record_daemon podman-pause "$pid"
}
