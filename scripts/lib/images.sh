# shellcheck shell=bash
# Builds the test images from files of this machine, without a registry.
#
# All five are in one archive in the format of `docker save`, which Docker and
# Podman can load. `docker import` is not used because Docker 20.10 ignores its
# --platform.

# Increase the version after a change to this file, to rebuild and reload the images.
IMAGES_VERSION=1
IMAGE_NAMES=(sandpen-test sandpen-busybox sandpen-entrypoint sandpen-node sandpen-arm64)
IMAGE_LABEL=dev.sandpen.rig

build_images() {
    IMAGES_ARCHIVE=$RIG/images/$IMAGES_VERSION.tar
    [ ! -e "$IMAGES_ARCHIVE" ] || return 0
    say 'building the test images'
    rm -rf "$RIG/images"
    mkdir -p "$RIG/images/work"
    (
        cd "$RIG/images/work"
        mkdir archive
        busybox_root busybox && pack_layer busybox
        foreign_root busybox arm64 && pack_layer arm64
        test_root test && pack_layer test
        write_images
    ) >"$RIG/logs/images.log" 2>&1 || {
        tail -n 5 "$RIG/logs/images.log" >&2
        die "could not build the test images, see $RIG/logs/images.log"
    }
    tar -C "$RIG/images/work/archive" -cf "$IMAGES_ARCHIVE.new" .
    mv "$IMAGES_ARCHIVE.new" "$IMAGES_ARCHIVE"
    rm -rf "$RIG/images/work"
}

busybox_root() {
    local applet
    mkdir -p "$1"/{bin,etc,root,tmp,home/node}
    chmod 1777 "$1/tmp"
    cp /usr/bin/busybox "$1/bin/busybox"
    for applet in $(busybox --list); do
        [ -e "$1/bin/$applet" ] || ln -s busybox "$1/bin/$applet"
    done
    write_accounts "$1"
}

# Writes aarch64 into the ELF header, so that an x86-64 kernel refuses to run the program.
foreign_root() {
    cp -a "$1" "$2"
    printf '\xb7\x00' | dd of="$2/bin/busybox" bs=1 seek=18 conv=notrunc status=none
}

# Copies the files of installed Debian packages and the libraries that they load,
# which takes seconds; debootstrap takes minutes.
test_root() {
    local root=$1
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64,local/bin} "$root"/{dev,proc,sys,run,etc,root,home/node,tmp,var/tmp}
    ln -s usr/bin usr/sbin usr/lib usr/lib64 "$root"
    chmod 1777 "$root"/tmp "$root"/var/tmp
    chmod 0700 "$root/root"

    package_files >files
    tar -C / --no-recursion -cf - -T files | tar -C "$root" -xf -
    libraries_of files >libraries
    tar -C / --dereference -cf - -T libraries | tar -C "$root" -xf -

    # Debian's alternatives system creates these links.
    ln -sf mawk "$root/usr/bin/awk"
    ln -sf which.debianutils "$root/usr/bin/which"
    # The tests check that a setuid program gains no privileges in a sandbox.
    install -m 4755 /usr/bin/id "$root/usr/local/bin/setuid-id"
    write_accounts "$root"
}

# Replaces /bin, /lib and so on by the directories that they link to; otherwise
# tar would replace the links by directories.
package_files() {
    dpkg -L "${IMAGE_PACKAGES[@]}" | grep -E '^/(usr|bin|sbin|lib|lib64)/' |
        grep -vE '^/usr/share/(doc|man|info|locale|lintian|bug|bash-completion)(/|$)' |
        in_usr | sort -u | while read -r file; do
            [ -d "/$file" ] && [ ! -L "/$file" ] || [ ! -e "/$file" ] || echo "$file"
        done
}

libraries_of() {
    local file
    while read -r file; do
        [ -f "/$file" ] && [ -x "/$file" ] && echo "/$file"
    done <"$1" | xargs ldd 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' | grep -v ':$' | in_usr | sort -u
}

in_usr() { sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#; s#^/##'; }

write_accounts() {
    printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'node:x:1000:1000:node:/home/node:/bin/sh' >"$1/etc/passwd"
    printf '%s\n' 'root:x:0:' 'node:x:1000:' >"$1/etc/group"
    printf '%s\n' 'passwd: files' 'group: files' 'hosts: files dns' >"$1/etc/nsswitch.conf"
}

# Sets the owners in the archive, because changing them on disk needs root.
pack_layer() {
    local layer=archive/$1.tar
    tar -C "$1" --owner=0 --group=0 --numeric-owner --exclude=./home/node -cf "$layer" .
    tar -C "$1" --owner=1000 --group=1000 --numeric-owner -rf "$layer" ./home/node
}

write_images() {
    local host_arch manifest
    case $(uname -m) in
        x86_64) host_arch=amd64 ;;
        aarch64) host_arch=arm64 ;;
        *) host_arch=$(uname -m) ;;
    esac
    manifest=$(
        describe_image sandpen-test test "$host_arch" '"Cmd":["bash"]'
        describe_image sandpen-node test "$host_arch" '"Cmd":["bash"],"User":"node"' /home/node
        describe_image sandpen-busybox busybox "$host_arch" '"Cmd":["sh"]'
        describe_image sandpen-entrypoint busybox "$host_arch" '"Entrypoint":["/bin/echo","ENTRYPOINT"]'
        describe_image sandpen-arm64 arm64 arm64 '"Cmd":["sh"]'
    )
    printf '[%s]\n' "$(paste -sd, <<<"$manifest")" >archive/manifest.json
}

describe_image() { # NAME LAYER ARCHITECTURE SETTINGS [HOME]
    local digest env='"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"'
    digest=$(sha256sum <"archive/$2.tar" | cut -d' ' -f1)
    [ -z "${5:-}" ] || env="$env,\"HOME=$5\""
    cat >"archive/$1.json" <<EOF
{"architecture":"$3","os":"linux","created":"2000-01-01T00:00:00Z",
 "config":{$4,"Env":[$env],"Labels":{"$IMAGE_LABEL":"$IMAGES_VERSION"}},
 "rootfs":{"type":"layers","diff_ids":["sha256:$digest"]}}
EOF
    printf '{"Config":"%s.json","RepoTags":["localhost/%s:latest"],"Layers":["%s.tar"]}\n' "$1" "$1" "$2"
}

has_images() { # ENGINE
    local expected
    expected=$(printf "$IMAGES_VERSION%.0s\n" "${IMAGE_NAMES[@]}")
    [ "$(engine_cli "$1" image inspect --format "{{index .Config.Labels \"$IMAGE_LABEL\"}}" \
        "${IMAGE_NAMES[@]/#/localhost/}" 2>/dev/null)" = "$expected" ]
}

load_images() { # ENGINE
    has_images "$1" || engine_cli "$1" load --quiet --input "$IMAGES_ARCHIVE"
}
