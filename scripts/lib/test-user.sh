# shellcheck shell=bash
# Creates the test user, who owns the rootless engines, and runs commands as that
# user. Without root, the calling user is the test user.

prepare_test_user() {
    if is_root; then
        TEST_USER=sandpen-test
        make_test_user
        allow_tun
        TEST_RUNTIME=$RIG/run-user
        make_user_dir "$TEST_RUNTIME" 0700
    else
        TEST_USER=$(id -un)
        TEST_RUNTIME=${XDG_RUNTIME_DIR:-$RIG/run-user}
        [ -d "$TEST_RUNTIME" ] || mkdir -m 0700 "$TEST_RUNTIME"
    fi
    write_storage_conf
    # shellcheck disable=SC2034 # scripts/engines exports it
    TEST_HOME=$(getent passwd "$TEST_USER" | cut -d: -f6)
    write_as_user
    as_user test -r "$RIG/as-user" || die "$TEST_USER cannot access $RIG: use another directory"
}

# The ids start at 1100, because the images have a user `node` with id 1000, and
# tests have to distinguish it from the user of the host.
make_test_user() {
    id "$TEST_USER" >/dev/null 2>&1 ||
        useradd -m -s /bin/bash -K UID_MIN=1100 -K GID_MIN=1100 "$TEST_USER"
    grep -q "^$TEST_USER:" /etc/subuid || usermod --add-subuids "$(free_range /etc/subuid)" "$TEST_USER"
    grep -q "^$TEST_USER:" /etc/subgid || usermod --add-subgids "$(free_range /etc/subgid)" "$TEST_USER"
}

free_range() {
    awk -F: '{ end = $2 + $3; if (end > first) first = end }
        BEGIN { first = 100000 } END { print first "-" first + 65535 }' "$1"
}

# slirp4netns runs as the test user and opens the device.
allow_tun() {
    mkdir -p /dev/net
    [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200 || return 0
    chmod 0666 /dev/net/tun || say "could not make /dev/net/tun accessible to $TEST_USER: rootless engines have no network"
}

make_user_dir() {
    mkdir -p "$1"
    if is_root; then chown "$TEST_USER:" "$1"; fi
    chmod "$2" "$1"
}

# By default Podman stores images in HOME, and their database records the first
# runtime directory. With both in the rig, tests can change HOME, and several
# rigs do not share state.
write_storage_conf() {
    TEST_STORAGE_CONF=$RIG/storage.conf
    make_user_dir "$RIG/podman-user" 0700
    printf '[storage]\ndriver = "overlay"\nrootless_storage_path = "%s"\nrunroot = "%s"\n' \
        "$RIG/podman-user" "$RIG/run-user/containers" >"$TEST_STORAGE_CONF"
}

# Writes a script instead of a function, because the tests call it, too. It clears
# the environment of root, except for variables that follow `env`.
write_as_user() {
    if is_root; then
        cat >"$RIG/as-user.new" <<EOF
#!/bin/sh
# as-user CMD [ARG...]: runs CMD as $TEST_USER; as-user env NAME=VALUE CMD... adds variables.
# Podman refuses to start in a directory that the user cannot enter, hence the cd.
exec setpriv --reuid=$TEST_USER --regid=$TEST_USER --init-groups --reset-env \\
    env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \\
    XDG_RUNTIME_DIR=${TEST_RUNTIME@Q} CONTAINERS_CONF=${CONTAINERS_CONF@Q} \\
    CONTAINERS_STORAGE_CONF=${TEST_STORAGE_CONF@Q} \\
    sh -c 'cd "\$PWD" 2>/dev/null || cd /; exec "\$@"' sh "\$@"
EOF
    else
        cat >"$RIG/as-user.new" <<EOF
#!/bin/sh
# as-user CMD [ARG...]: runs CMD as the user who created this rig.
exec env XDG_RUNTIME_DIR=${TEST_RUNTIME@Q} CONTAINERS_CONF=${CONTAINERS_CONF@Q} \\
    CONTAINERS_STORAGE_CONF=${TEST_STORAGE_CONF@Q} "\$@"
EOF
    fi
    chmod 0755 "$RIG/as-user.new"
    mv "$RIG/as-user.new" "$RIG/as-user"
}

as_user() { "$RIG/as-user" "$@"; }
