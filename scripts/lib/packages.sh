# shellcheck shell=bash
# Decides which Debian packages the rig lacks, and installs them when it may.

# What shows that it is there, then the Debian package that brings it. A probe
# rather than the package's own state, so that docker-ce counts as Docker.
REQUIREMENTS='
docker                        docker.io
dockerd                       docker.io
podman                        podman
runc                          runc
crun                          crun
newuidmap                     uidmap
fuse-overlayfs                fuse-overlayfs
slirp4netns                   slirp4netns
rootlesskit                   rootlesskit
ip                            iproute2
/usr/lib/podman/netavark      netavark
/usr/lib/podman/aardvark-dns  aardvark-dns
iptables                      iptables
catatonit                     catatonit
/usr/sbin/sshd                openssh-server
bwrap                         bubblewrap
tmux                          tmux
zsh                           zsh
fish                          fish
cc                            gcc
/usr/include/stdlib.h         libc6-dev
setpriv                       util-linux
flock                         util-linux
'

# The test image is made of the files of these packages (lib/images.sh).
IMAGE_PACKAGES=(
    base-files bash busybox-static coreutils dash debianutils diffutils findutils
    git grep gzip hostname libc-bin mawk mount ncurses-base openssh-client
    perl-base procps sed socat tar util-linux
)

missing_packages() {
    local probe package
    {
        while read -r probe package; do
            [ -z "$probe" ] || [ -e "$probe" ] || has "$probe" || echo "$package"
        done <<<"$REQUIREMENTS"
        for package in "${IMAGE_PACKAGES[@]}"; do
            dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null |
                grep -qx installed || echo "$package"
        done
    } | sort -u
}

install_missing_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! has apt-get; then
        say "no apt-get here; missing: ${missing[*]}"
        return 0
    fi
    say "installing ${missing[*]}"
    {
        DEBIAN_FRONTEND=noninteractive apt-get update &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
    } >"$RIG/logs/apt.log" 2>&1 </dev/null || {
        tail -n 5 "$RIG/logs/apt.log" >&2
        die "apt-get failed, see $RIG/logs/apt.log"
    }
    hash -r
}

report_missing_packages() {
    local missing
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -eq 0 ] || say "not root, so nothing is installed; missing: ${missing[*]}"
}
