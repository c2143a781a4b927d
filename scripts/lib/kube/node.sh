# The node's first process: sets the node's own view of the system up, says so, and takes in orphans.
# It has process, mount, network, host name and IPC namespaces of its own, so that everything that the cluster
# starts, mounts or configures goes when this process goes, whatever happened.
set -euo pipefail
dir=$1 node_ip=$2 api_ip=$3 gateway=$4

hostname node
mount --make-rslave /    # nothing that is mounted here reaches the host
mount --make-rshared /   # but volumes reach the containers

# Paths that Kubernetes and containerd have built in: the node's are in KUBE_DIR, or in memory.
exec 9<"$dir"
mkdir -p "$dir"/data/{log,lib}
mount --bind "$dir/data/log" /var/log
mount --bind "$dir/data/lib" /var/lib
mount -t tmpfs -o mode=755 node /run
if [ ! -e "$dir/.sandpen-kube" ]; then    # KUBE_DIR itself lies below one of them
  mkdir -p "$dir"
  mount -c --bind /proc/self/fd/9 "$dir"
fi
exec 9<&-

# The kubelet sets these for the whole system: it gets copies.
mkdir -p "$dir/run/sys"
for name in kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes vm/overcommit_memory vm/panic_on_oom; do
  [ -e /proc/sys/$name ] || continue
  cat /proc/sys/$name >"$dir/run/sys/${name//\//.}"
  mount --bind "$dir/run/sys/${name//\//.}" /proc/sys/$name
done

# The cable to the host is put in from outside.
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip link set lo up
ip addr add "$api_ip/32" dev lo
ip addr add "$node_ip/24" dev eth0
ip link set eth0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready >"$dir/run/node"

# Bash takes in orphans while it waits. `enforce` is looked at twice a second.
. "$(dirname "$0")/enforce.sh"
while :; do
  enforce_policies || true
  sleep 0.5 &
  wait $!
done
