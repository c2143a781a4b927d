"""Measure sandboxes on other machines: the launch of a pod beside `kubectl run`, the workspace that goes there beside `tar`, one commit that
comes back, and the launch of a container beside `docker run` over the same connection.

The cluster is the one of `scripts/engines`, or that of KUBECONFIG; the other machine is the one that SANDPEN_BENCH_REMOTE names, such as
`ssh://me@build.example`.
"""
import os
import shlex
import statistics
import subprocess
import time

from bench_compare import Command, print_table
from bench_rig import IMAGE

IMAGE_WITH_GIT = os.environ.get("SANDPEN_BENCH_GIT_IMAGE", "localhost/sandpen-test:latest")
FILES, FILE_BYTES = 27_000, 11_000
REMOTE = "SANDPEN_BENCH_REMOTE"


def cluster(rig):
    """Return the environment in which kubectl reaches the cluster, or None."""
    env = dict(rig.runner.env)
    if test := os.environ.get("SANDPEN_TEST_KUBE"):
        env["PATH"] = f"{test}/bin:{env['PATH']}"
        env["KUBECONFIG"] = f"{test}/config"
    elif "KUBECONFIG" in os.environ:
        env["KUBECONFIG"] = os.environ["KUBECONFIG"]
    ready = Command(["kubectl", "get", "pods", "--output=name"], env=env)
    return None if rig.runner.failure_reason(ready, 20) else env


def launch_pod(rig, env):
    """Compare a launch to `kubectl run --rm -i` of the same image."""
    bare = f"kubectl run bench-$$ --rm -i --quiet --restart=Never --image={shlex.quote(IMAGE)} --image-pull-policy=Never -- true"
    reference = Command(["sh", "-c", bare], env=env, title="kubectl run --rm -i")
    table = rig.runner.compare(rig.fewer_rounds(6), reference, {"sandpen": rig.run("kubernetes", env=env)})
    print_table("a pod, compared to kubectl run", table)
    return table


def transfer(rig, env):
    """Compare a workspace of many files to `tar` over `kubectl exec`; a launch without files is subtracted."""
    path = rig.make_directory("home/transfer")
    for number in range(FILES):
        directory = f"{path}/d{number // 100}"
        os.makedirs(directory, exist_ok=True)
        with open(f"{directory}/f{number}", "wb") as file:
            file.write(os.urandom(FILE_BYTES))
    pod = "bench-transfer"
    kubectl = lambda *words: subprocess.run(["kubectl", *words], env=env, check=True, capture_output=True)
    kubectl("run", pod, "--restart=Never", f"--image={IMAGE}", "--image-pull-policy=Never", "--command", "--", "sleep", "3600")
    try:
        kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")
        copy = f"tar c . | kubectl exec -i {pod} -- sh -c 'rm -rf /tmp/x; mkdir /tmp/x; tar x -C /tmp/x'"
        run = rig.run("kubernetes", env=env).argv
        rounds = [(timed(["sh", "-c", copy], path, env), timed(run, path, env), timed(run, rig.empty, env)) for _ in range(rig.fewer_rounds(10))]
    finally:
        kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    ratio = statistics.median((full - empty) / tar for tar, full, empty in rounds)
    seconds = statistics.median(full - empty for _, full, empty in rounds)
    print(f"  {FILES} files of {FILE_BYTES} bytes: {seconds:.2f} s, {ratio:.2f} of tar")
    return {"s": seconds, "ratio": ratio}


def commit(rig, env):
    """Measure what a commit adds to a launch in a repository."""
    path = rig.repository("pod-repository", files=100)
    run = lambda script: timed(
        [rig.sandpen, "run", "-q", "--ssh-agent", "off", "--engine", "kubernetes", "--image", IMAGE_WITH_GIT, "--", "sh", "-ec", script], path, env)
    work = "git -c user.name=bench -c user.email=bench@example.org commit --quiet --allow-empty --message one"
    seconds = statistics.median(run(work) - run("true") for _ in range(rig.fewer_rounds(6)))
    print(f"  one commit back: {seconds:.2f} s")
    return {"s": seconds}


def launch_container(rig):
    """Compare a launch to `docker run` over the same connection."""
    env = {**rig.runner.env, "DOCKER_HOST": os.environ[REMOTE]}
    reference = Command(["docker", "run", "--rm", "--pull", "never", IMAGE, "true"], env=env, title="docker run, the same connection")
    table = rig.runner.compare(rig.fewer_rounds(6), reference, {"sandpen": rig.run("docker", env=env)})
    print_table("a container on another machine, compared to docker run", table)
    return table


def timed(words, directory, env):
    started = time.perf_counter()
    subprocess.run(words, cwd=directory, env=env, check=True, capture_output=True)
    return time.perf_counter() - started


def measure(rig):
    results = {}
    if env := cluster(rig):
        results = {"launch": launch_pod(rig, env), "workspace": transfer(rig, env), "commit": commit(rig, env)}
    else:
        print("  no cluster answers")
    if REMOTE in os.environ:
        results["container"] = launch_container(rig)
    else:
        print(f"  no other machine: {REMOTE} is not set")
    return results
