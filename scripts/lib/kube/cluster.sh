# up, down, status, env, load, pid, cable, enforce, purge: the cluster's life.

kube_up() {
  need_root
  is_built || fail "nothing is built in $KUBE_DIR; run 'kube build' first"
  claim_directory
  exec 8>"$KUBE_DIR/run/lock"
  flock -w 60 8 || fail "another 'kube' works in $KUBE_DIR"
  certificates
  settings
  node_runs || start_node
  kube_cable in
  start etcd --name node --data-dir "$KUBE_DIR/data/etcd" --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster node=http://127.0.0.1:2380
  start containerd --config "$KUBE_DIR/etc/containerd.toml"
  local pki=$KUBE_DIR/pki
  start kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --secure-port=443 --advertise-address="$NODE_IP" \
    --tls-cert-file="$pki/kube-apiserver.crt" --tls-private-key-file="$pki/kube-apiserver.key" --client-ca-file="$pki/ca.crt" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true --profiling=false \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --service-cluster-ip-range=10.96.0.0/24 --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority="$pki/ca.crt" \
    --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" --cert-dir="$KUBE_DIR/run/certs"
  wait_for 60 "containerd answers" ctr version
  ctr images ls -q | grep -qx localhost/pause:1 || ctr images import "$KUBE_DIR/images/pause.tar" >/dev/null
  wait_for 120 "the API server is ready" admin get --raw /readyz
  say "API server ready"
  start kube-controller-manager --kubeconfig="$KUBE_DIR/etc/kube-controller-manager.kubeconfig" --leader-elect=false --bind-address=127.0.0.1 --port=0 \
    --use-service-account-credentials=true --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt"
  start kube-scheduler --kubeconfig="$KUBE_DIR/etc/kube-scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1 --port=0
  start kubelet --config="$KUBE_DIR/etc/kubelet.yaml" --kubeconfig="$KUBE_DIR/etc/kubelet.kubeconfig" --hostname-override=node --node-ip="$NODE_IP" \
    --root-dir="$KUBE_DIR/data/kubelet" --cert-dir="$KUBE_DIR/run/certs" \
    --container-runtime=remote --container-runtime-endpoint="unix://$KUBE_DIR/run/containerd.sock"
  admin apply -f "$KUBE_DIR/etc/rights.yaml" >/dev/null
  wait_for 120 "the node is Ready" node_ready
  wait_for 60 "the kubelet answers" bash -c ": </dev/tcp/$NODE_IP/10250"
  wait_for 60 "the namespace 'sandbox' is ready for pods" admin get serviceaccount -n sandbox default
  say "node Ready; export \$(kube env)"
}

node_ready() { admin get node node -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' | grep -q True; }

# --- the node: namespaces, a cable, programs in them

node_pid() {
  local pid
  pid=$(cat "$KUBE_DIR/run/node.pid" 2>/dev/null) && [ -r "/proc/$pid/cmdline" ] || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "/node.sh $KUBE_DIR " || return 1
  echo "$pid"
}

node_runs() { node_pid >/dev/null && [ -e "$KUBE_DIR/run/node" ]; }

start_node() {
  kube_down quiet
  ! ip link show "$LINK" >/dev/null 2>&1 || fail "the interface $LINK is there already: another cluster runs? ('kube down' with its KUBE_DIR, or set KUBE_LINK and KUBE_NET)"
  ! ip -4 -o addr show | grep -qF " $NET.76." || fail "$NET.76.0/24 is in use here already; set KUBE_NET to another prefix such as 10.232"
  ! pods_of_others || fail "another kubelet runs here (processes in its control group kubepods)"
  rm -rf --one-file-system "$KUBE_DIR"/data/{etcd,kubelet,cni,log,lib} "$KUBE_DIR"/run/{node,enforce,sys}
  mkdir -p "$KUBE_DIR/data"
  setsid unshare --mount --uts --ipc --pid --net --fork --kill-child --mount-proc \
    bash "$HERE/node.sh" "$KUBE_DIR" "$NODE_IP" "$API_IP" "$NET.77.1" >"$KUBE_DIR/log/node.log" 2>&1 </dev/null 8>&- &
  local outer=$! pid
  wait_for 10 "the node's first process is there" grep -q . "/proc/$outer/task/$outer/children"
  pid=$(xargs <"/proc/$outer/task/$outer/children")
  echo "$pid" >"$KUBE_DIR/run/node.pid"
  wait_for 10 "the node's first process runs" node_pid
  # While no cluster runs, its addresses lead nowhere, rather than to the host's default route.
  ip route replace unreachable "$NET.76.0/23" metric 4096
  ip link add "$LINK" type veth peer name eth0 netns "$pid"
  ip addr add "$NET.76.1/24" dev "$LINK"
  ip link set "$LINK" up
  ip route add "$NET.77.0/24" via "$NODE_IP"
  wait_for 10 "the node is set up" test -e "$KUBE_DIR/run/node"
}

inside() { nsenter --target "$(node_pid)" --mount --uts --ipc --pid --net -- "$@"; }

# Starts a program of the cluster in the node, unless it runs.
start() {
  local name=$1
  shift
  [ -z "$(program_pid "$name")" ] || return 0
  PATH=$KUBE_DIR/bin:$PATH inside setsid --fork "$KUBE_DIR/bin/$name" "$@" >"$KUBE_DIR/log/$name.log" 2>&1 </dev/null 8>&-
}

# The host's process id of a program of the cluster; empty if it does not run.
program_pid() {
  local at node first
  node=$(node_pid) || return 0
  for at in /proc/[0-9]*; do
    { IFS= read -r -d '' first <"$at/cmdline"; } 2>/dev/null || continue
    if [ "$first" = "$KUBE_DIR/bin/$1" ] && [ "$at/ns/pid" -ef "/proc/$node/ns/pid" ]; then
      echo "${at#/proc/}"
      return
    fi
  done
}

ctr() { "$KUBE_DIR/bin/ctr" -a "$KUBE_DIR/run/containerd.sock" -n k8s.io "$@"; }

control_groups() { find /sys/fs/cgroup -maxdepth 2 -type d -name kubepods 2>/dev/null; }

pods_of_others() { control_groups | while read -r at; do find "$at" -name cgroup.procs -exec cat {} +; done 2>/dev/null | grep -q .; }

# --- the other commands

kube_down() {
  need_root
  local pid id at
  if pid=$(node_pid); then
    for at in kubelet kube-apiserver; do kill "$(program_pid $at)" 2>/dev/null || true; done
    if [ -n "$(program_pid containerd)" ]; then    # so that the next start finds no remains
      for id in $(ctr containers ls -q 2>/dev/null); do
        timeout 5 "$KUBE_DIR/bin/ctr" -a "$KUBE_DIR/run/containerd.sock" -n k8s.io tasks rm -f "$id" >/dev/null 2>&1 || true
        ctr containers rm "$id" >/dev/null 2>&1 || true
      done
    fi
    kill -KILL "$pid"    # and with it, by the kernel, everything in the node
    while [ -d "/proc/$pid" ]; do sleep 0.05; done
    ip link del "$LINK" 2>/dev/null || true
    for at in $(control_groups); do find "$at" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
    [ "${1:-}" = quiet ] || say "ended"
  elif [ "${1:-}" != quiet ]; then
    say "does not run"
  fi
  rm -f "$KUBE_DIR/run/node.pid" "$KUBE_DIR/run/node"
}

kube_status() {
  is_built && echo "built: Kubernetes $VERSION in $KUBE_DIR" || echo "not built (kube build)"
  node_runs || { echo "does not run (kube up)"; exit 3; }
  local name pid bad=0
  for name in $PROGRAMS; do
    pid=$(program_pid "$name")
    if [ -n "$pid" ]; then
      printf '%-24s process %-8s %4d MB\n' "$name" "$pid" $(($(awk '/^VmRSS/ {print $2}' "/proc/$pid/status") / 1024))
    else
      printf '%-24s does not run\n' "$name"
      bad=1
    fi
  done
  node_ready 2>/dev/null && echo "node: Ready" || { echo "node: not Ready"; bad=1; }
  echo "network policies: $([ -e "$KUBE_DIR/run/enforce" ] && echo "deny-all enforced" || echo "not enforced")"
  ctr images ls -q 2>/dev/null | grep -v '^sha256:' | sed 's/^/image: /'
  [ $bad = 0 ] || exit 3
}

kube_env() {
  [ -e "$KUBE_DIR/etc/limited.kubeconfig" ] || fail "no cluster was started yet in $KUBE_DIR (kube up)"
  echo "KUBECONFIG=$KUBE_DIR/etc/limited.kubeconfig"
  echo "KUBECONFIG_ADMIN=$KUBE_DIR/etc/admin.kubeconfig"
  echo "KUBECTL=$KUBE_DIR/bin/kubectl"
  [ ! -x "$KUBE_DIR/bin/kubectl-newest" ] || echo "KUBECTL_NEWEST=$KUBE_DIR/bin/kubectl-newest"
}

kube_load() {
  need_root
  [ $# -gt 0 ] || fail "load: name an archive that 'docker save' wrote"
  [ -n "$(program_pid containerd)" ] || fail "the cluster does not run (kube up)"
  local file
  for file in "$@"; do
    [ -f "$file" ] && [ -r "$file" ] || fail "no such archive: $file"
    ctr images import "$file" || fail "containerd does not take $file"
  done
  say "loaded; a pod's imagePullPolicy must be IfNotPresent or Never"
}

kube_pid() {
  case " $PROGRAMS " in *" ${1:-?} "*) ;; *) fail "pid: name one of $PROGRAMS" ;; esac
  local pid
  pid=$(program_pid "$1")
  [ -n "$pid" ] || fail "$1 does not run"
  echo "$pid"
}

# The node's end is pulled, so that packets to it are lost and do not go elsewhere.
kube_cable() {
  need_root
  node_runs || fail "the cluster does not run (kube up)"
  case ${1:-} in
    out) inside ip link set eth0 down ;;
    in) inside ip link set eth0 up ;;
    *) fail "cable: say out or in" ;;
  esac
}

kube_enforce() {
  need_root
  node_runs || fail "the cluster does not run (kube up)"
  case ${1:-} in
    on) touch "$KUBE_DIR/run/enforce" ;;
    off) rm -f "$KUBE_DIR/run/enforce" ;;
    *) fail "enforce: say on or off" ;;
  esac
}

kube_purge() {
  need_root
  [ -d "$KUBE_DIR" ] || { say "nothing in $KUBE_DIR"; return; }
  [ -e "$KUBE_DIR/.sandpen-kube" ] || fail "$KUBE_DIR was not made by this tool"
  kube_down quiet
  ip route del unreachable "$NET.76.0/23" metric 4096 2>/dev/null || true
  local installed
  installed=$({ cat "$KUBE_DIR/.installed" 2>/dev/null || true; } | xargs)
  rm -rf --one-file-system "$KUBE_DIR"
  say "removed $KUBE_DIR${installed:+; installed by 'kube build' and left: $installed}"
}

# --- what the programs read

settings() {
  local etc=$KUBE_DIR/etc snapshotter=overlayfs
  case $(stat -f -c %T "$KUBE_DIR") in overlayfs) snapshotter=native ;; esac    # no overlay on an overlay
  cat >"$etc/containerd.toml" <<END
version = 2
root = "$KUBE_DIR/data/containerd"
state = "$KUBE_DIR/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "$KUBE_DIR/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_tcp_service = true
  restrict_oom_score_adj = true    # a root without CAP_SYS_RESOURCE cannot lower it
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$KUBE_DIR/cni"
    conf_dir = "$etc/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$KUBE_DIR/bin/runc"
        SystemdCgroup = false
END
  mkdir -p "$etc/cni"
  cat >"$etc/cni/10-bridge.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$KUBE_DIR/data/cni", "ranges": [[{"subnet": "$NET.77.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
  echo "nameserver $NET.76.1" >"$etc/resolv.conf"    # nobody answers there, so names fail at once
  cat >"$etc/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
readOnlyPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $KUBE_DIR/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $KUBE_DIR/pki/kubelet-server.crt
tlsPrivateKeyFile: $KUBE_DIR/pki/kubelet-server.key
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 1s
resolvConf: $etc/resolv.conf
evictionHard: {memory.available: "50Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
volumePluginDir: $KUBE_DIR/data/kubelet/plugins
END
  cat >"$etc/rights.yaml" <<'END'
apiVersion: v1
kind: Namespace
metadata: {name: sandbox}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: limited, namespace: sandbox}
rules:
- {apiGroups: [""], resources: [pods], verbs: [create, get, list, watch, delete, patch]}
- {apiGroups: [""], resources: [pods/exec, pods/attach, pods/portforward], verbs: [create, get]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [events], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [create, get, list, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited, namespace: sandbox}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects: [{kind: User, name: limited, apiGroup: rbac.authorization.k8s.io}]
END
}
