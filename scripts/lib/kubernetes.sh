# shellcheck shell=bash
# Starts a Kubernetes cluster for the tests, if one has been built.

kube() { "$SCRIPTS/kube" "$@"; }

kubernetes_unavailable() {
    is_root || { echo 'a cluster needs root'; return; }
    if [ -s "$RIG/logs/kube.failed" ]; then last_line "$RIG/logs/kube.failed"; return; fi
    [ -e "$RIG/kube/config" ] || echo 'not built: SANDPEN_BUILD_KUBE=1 scripts/engines up builds it once'
}

# `kube status` fails also if the cluster does not run.
is_kubernetes_built() { [[ $(kube status 2>/dev/null || true) == built* ]]; }

start_kubernetes() {
    rm -rf "$RIG/kube" "$RIG/logs/kube.failed"
    is_root || return 0
    if ! is_kubernetes_built; then
        [ "${SANDPEN_BUILD_KUBE:-}" = 1 ] || return 0
        say 'building Kubernetes, which takes ten minutes and longer'
        kube build --newest-kubectl >"$RIG/logs/kube-build.log" 2>&1 || { last_line "$RIG/logs/kube-build.log" >"$RIG/logs/kube.failed"; return 0; }
    fi
    if ! kube status >/dev/null 2>&1; then
        say 'starting Kubernetes'
        touch "$RIG/kube-started"
    fi
    kube up >"$RIG/logs/kube.log" 2>&1 {LOCK}>&- || { last_line "$RIG/logs/kube.log" >"$RIG/logs/kube.failed"; return 0; }
    give_kubectl
}

# Gives the test user kubectl and the configuration of a user with few rights.
give_kubectl() {
    local line
    mkdir -p "$RIG/kube/bin" "$RIG/kube/newest"
    while read -r line; do
        case $line in
            KUBECONFIG=*) install -m 0644 "${line#*=}" "$RIG/kube/config" ;;
            KUBECTL=*) install -m 0755 "${line#*=}" "$RIG/kube/bin/kubectl" ;;
            KUBECTL_NEWEST=*) install -m 0755 "${line#*=}" "$RIG/kube/newest/kubectl" ;;
        esac
    done < <(kube env)
}

# A cluster takes images for its own architecture only, so it gets them one by one from Docker.
load_pod_images() {
    local name archive=$RIG/images/pods.tar
    [ ! -e "$RIG/kube/loaded" ] || return 0
    load_images docker
    docker save --output "$archive" localhost/sandpen-test localhost/sandpen-busybox localhost/sandpen-node
    kube load "$archive"
    rm -f "$archive"
    touch "$RIG/kube/loaded"
}

run_true_in_pod() {
    load_pod_images
    "$RIG/kube/bin/kubectl" --kubeconfig "$RIG/kube/config" run "probe-$$" --rm -i --restart=Never \
        --image=localhost/sandpen-test --image-pull-policy=Never -- true
}

stop_kubernetes() {
    [ ! -e "$RIG/kube-started" ] || kube down >"$RIG/logs/kube.log" 2>&1 || say "Kubernetes did not end, see $RIG/logs/kube.log"
    rm -f "$RIG/kube-started"
}
