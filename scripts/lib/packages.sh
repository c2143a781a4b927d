# shellcheck shell=bash
# Finds missing Debian packages, and installs them if the user is root.

# Each line has a command or file, and the Debian package that contains it. The
# state of the package is not checked, so that docker-ce counts as Docker.
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
curl                          curl
htop                          htop
vim                           vim
less                          less
zsh                           zsh
fish                          fish
cc                            gcc
/usr/include/stdlib.h         libc6-dev
setpriv                       util-linux
flock                         util-linux
openssl                       openssl
/usr/bin/docker-registry      docker-registry
chromium                      chromium
'

# lib/images.sh copies the files of these packages into the test image.
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
        say "apt-get is not available; missing packages: ${missing[*]}"
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
    [ ${#missing[@]} -eq 0 ] || say "only root can install packages; missing packages: ${missing[*]}"
}
