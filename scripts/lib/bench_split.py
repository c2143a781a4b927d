"""Measure the single steps of a launch: of an engine's client and API, and of sandpen on native."""
import datetime
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import time

from bench_compare import Command
from bench_rig import IMAGE, START_GIT

HARDENED = {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "LogConfig": {"Type": "none"}}
FLAGS = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none"]
NETWORKS = ("default", "none", "host")


class Api(http.client.HTTPConnection):
    """Calls an engine's API over one connection to its socket."""

    def __init__(self, path, wait):
        super().__init__("engine", timeout=60)
        self.path, self.wait = path, wait

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def call(self, method, path, body=None):
        """Send a request and return its duration in milliseconds and the decoded response."""
        started = time.perf_counter()
        content = json.dumps(body) if body is not None else None
        self.request(method, path if path.startswith("/v") else f"/v1.40{path}", content, {"Content-Type": "application/json"} if content else {})
        response = self.getresponse()
        text = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {text[:200]!r}")
        try:
            return (time.perf_counter() - started) * 1000, json.loads(text)
        except ValueError:
            return (time.perf_counter() - started) * 1000, None


class service:
    """Connects to Docker's daemon, or to a Podman service that it starts and stops."""

    def __init__(self, rig, engine):
        self.rig, self.engine, self.process = rig, engine, None

    def __enter__(self):
        if self.engine == "docker":
            address = self.rig.runner.env.get("DOCKER_HOST", "unix:///var/run/docker.sock")
            return Api(address.removeprefix("unix://"), "/v1.40/containers/{}/wait") if address.startswith("unix://") else None
        path = f"{self.rig.directory}/podman.sock"
        self.process = subprocess.Popen(["podman", "system", "service", "--time", "0", f"unix://{path}"], env=self.rig.runner.env,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            if os.path.exists(path):
                # Docker's request makes Podman poll every 250 ms; Podman's has an interval.
                return Api(path, "/v4.0.0/libpod/containers/{}/wait?interval=5ms")
            time.sleep(0.02)
        return None

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()


def by_api(api, network):
    """Run a container with API requests and return the duration of each step.

    The duration of the guest is the difference of the start and exit times that the engine records.
    """
    host = {**HARDENED, **({} if network == "default" else {"NetworkMode": network})}
    steps = {}
    steps["create"], created = api.call("POST", "/containers/create", {"Image": IMAGE, "Cmd": ["true"], "HostConfig": host})
    at = f"/containers/{created['Id']}"
    steps["start"], _ = api.call("POST", f"{at}/start")
    steps["wait"], _ = api.call("POST", api.wait.format(created["Id"]))
    _, state = api.call("GET", f"{at}/json")
    steps["remove"], _ = api.call("DELETE", at)
    started, ended = (parse_time(state["State"][name]) for name in ("StartedAt", "FinishedAt"))
    if started and ended:
        # The engine records both times slightly late, so the difference can be negative.
        steps["guest"] = max(0, ended - started) * 1000
    return steps


def parse_time(text):
    """Return the seconds since the epoch of an engine's timestamp, or None if it is not one."""
    found = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d+)", text)
    if not found:
        return None
    whole = datetime.datetime.fromisoformat(found[1]).replace(tzinfo=datetime.timezone.utc).timestamp()
    return whole + float(f"0.{found[2]}")


def exec_by_api(api, container):
    started = time.perf_counter()
    _, created = api.call("POST", f"/containers/{container}/exec", {"Cmd": ["true"], "AttachStdout": True, "AttachStderr": True})
    # The response ends with the command, and the engine then closes the connection.
    api.request("POST", f"/v1.40/exec/{created['Id']}/start", json.dumps({"Detach": False, "Tty": False}), {"Content-Type": "application/json"})
    api.getresponse().read()
    api.close()
    return (time.perf_counter() - started) * 1000


def by_client(rig, engine, network):
    """Run a container with separate client commands and return the duration of each."""
    network_flags = [] if network == "default" else ["--network", network]
    call = lambda *arguments: subprocess.run([engine, *arguments], env=rig.runner.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                             stdout=subprocess.PIPE, text=True, check=True)
    # Podman polls every 250 ms by default.
    interval = ["--interval", "5ms"] if engine == "podman" else []
    steps, started = {}, time.perf_counter()
    created = call("create", *FLAGS, *network_flags, IMAGE, "true").stdout.strip()
    for name, arguments in (("create", None), ("start", ["start", created]), ("wait", ["wait", *interval, created]), ("remove", ["rm", created])):
        if arguments:
            started = time.perf_counter()
            call(*arguments)
        steps[name] = (time.perf_counter() - started) * 1000
    return steps


def container(rig, engine):
    """Return the median duration of each step of an engine in milliseconds."""
    run = lambda network: Command([engine, "run", "--rm", *FLAGS, *([] if network == "default" else ["--network", network]), IMAGE, "true"])
    running = subprocess.run([engine, "run", "--rm", "--detach", "--network", "none", IMAGE, "sleep", "600"], env=rig.runner.env,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.strip()
    taken = {}
    record = lambda name, ms: taken.setdefault(name, []).append(ms)
    try:
        with service(rig, engine) as api:
            for number in range(rig.fewer_rounds(4, 3) + 1):
                if number == 1:
                    # Discard the first round, which fills the caches.
                    taken.clear()
                record("client: start of the client", rig.runner.time(Command([engine, "--version"]))[0] * 1000)
                record("client: ps", rig.runner.time(Command([engine, "ps", "--quiet", "--filter", "name=nothing"]))[0] * 1000)
                record("client: exec", rig.runner.time(Command([engine, "exec", running, "true"]))[0] * 1000)
                for step, ms in by_client(rig, engine, "default").items():
                    record(f"client: {step}", ms)
                for network in NETWORKS:
                    record(f"client: run, network {network}", rig.runner.time(run(network))[0] * 1000)
                    for step, ms in (by_api(api, network) if api else {}).items():
                        record(f"api: {step}, network {network}", ms)
                if api:
                    record("api: exec", exec_by_api(api, running))
    finally:
        subprocess.run([engine, "rm", "--force", running], env=rig.runner.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    table = {name: statistics.median(values) for name, values in taken.items()}
    print(f"\nsteps of a launch on {engine}, ms")
    for name, ms in table.items():
        print(f"  {name:36} {ms:8.2f}")
    return table


TRACED_CALLS = "execve,clone,clone3,pivot_root,umount2,rename,renameat,renameat2,exit_group"
# Each step has a name, the process whose system call ends it, and a pattern for that call.
STEPS = (
    ("start, configuration, facts, plan", "launcher", r"^rename\w*\(.*\.new-"),
    ("session directory", "launcher", r"^clone3?\(.*NEWNS"),
    ("namespaces and mounts", "first", r"^pivot_root"),
    ("unmounting the old root", "first", r"^umount2\(.*= 0|umount2 resumed"),
    ("confinement and start of the guest", "guest", r"execve(\(| resumed).*= 0$"),
    ("guest", "guest", r"^exit_group"),
    ("exit", "launcher", r"^rename\w*\(.*\.old-"),
    ("removal of the session and exit", "launcher", r"^\+\+\+ exited"),
)


def native(rig):
    """Measure sandpen's steps with strace, scaled to the time of an untraced launch."""
    command = rig.run("native", cwd=rig.repository("repository"))
    untraced, without_network, with_git, steps = [], [], [], []
    for _ in range(rig.fewer_rounds(2, 5)):
        untraced.append(rig.runner.time(command)[0] * 1000)
        without_network.append(rig.runner.time(rig.run("native", "--network", "off", cwd=command.cwd))[0] * 1000)
        with_git.append(rig.runner.time(rig.run("native", cwd=command.cwd, env=START_GIT))[0] * 1000)
        if rig.has("strace") and (durations := trace(rig, command)):
            steps.append(durations)
    total = statistics.median(untraced)
    table = {"total": total, "with_git": statistics.median(with_git), "off": statistics.median(without_network)}
    if steps:
        scale = total / statistics.median(sum(durations.values()) for durations in steps)
        table.update({name: statistics.median(durations[name] for durations in steps) * scale for name in steps[0]})
    table["exec"] = time_of_exec(rig)
    print("\nsteps of a launch on native, ms" + ("" if steps else " (total only: strace is not installed or failed)"))
    for name, ms in table.items():
        print(f"  {name:36} {ms:8.2f}")
    return table


def trace(rig, command):
    """Return the duration of each step in milliseconds, or None if a system call is missing."""
    path = f"{rig.directory}/trace"
    rig.runner.time(Command(["strace", "-f", "--seccomp-bpf", "-ttt", "-e", f"trace={TRACED_CALLS}", "-o", path, *command.argv], cwd=command.cwd))
    lines = [line.rstrip("\n").split(maxsplit=2) for line in open(path)]
    lines = [(pid, float(when), what) for pid, when, what in lines]
    first = next((pid for pid, _, what in lines if what.startswith("pivot_root")), None)
    guest = next((pid for pid, when, what in reversed(lines) if "execve" in what), None)
    processes = {"launcher": lines[0][0], "first": first, "guest": guest}
    steps, at, last = {}, 1, lines[0][1]
    for name, process, pattern in STEPS:
        while at < len(lines) and not (lines[at][0] == processes[process] and re.search(pattern, lines[at][2])):
            at += 1
        if at == len(lines):
            return None
        steps[name] = (lines[at][1] - last) * 1000
        last = lines[at][1]
    return steps


def time_of_exec(rig):
    """Return the median time of `sandpen exec` in a running sandbox in milliseconds."""
    command = rig.run("native", "--name", "bench", command=("sleep", "60"))
    running = subprocess.Popen(command.argv, cwd=rig.empty, env=rig.runner.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    command_inside = Command([rig.sandpen, "exec", "bench", "--", "true"])
    try:
        for _ in range(100):
            if rig.runner.time(command_inside)[1] == 0:
                break
            time.sleep(0.02)
        return statistics.median(rig.runner.time(command_inside)[0] * 1000 for _ in range(rig.rounds))
    finally:
        running.terminate()
        running.wait()
