"""Where a launch goes: an engine's steps one by one, by its client and by its API, and sandpen's own on the native engine."""
import datetime
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import time

from bench_race import Command
from bench_rig import ASK_GIT, IMAGE

HARDENED = {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "LogConfig": {"Type": "none"}}
FLAGS = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none"]
NETWORKS = ("default", "none", "host")


class Api(http.client.HTTPConnection):
    """An engine's API over its socket; one connection, as a resident client would keep it."""

    def __init__(self, path, wait):
        super().__init__("engine", timeout=60)
        self.path, self.wait = path, wait

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, where, body=None):
        """Milliseconds and the answer."""
        begun = time.perf_counter()
        content = json.dumps(body) if body is not None else None
        self.request(method, where if where.startswith("/v") else f"/v1.40{where}", content, {"Content-Type": "application/json"} if content else {})
        answer = self.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {where}: {answer.status} {text[:200]!r}")
        try:
            return (time.perf_counter() - begun) * 1000, json.loads(text)
        except ValueError:
            return (time.perf_counter() - begun) * 1000, None


class service:
    """The engine's API: Docker's daemon, or a Podman service for the while."""

    def __init__(self, rig, engine):
        self.rig, self.engine, self.process = rig, engine, None

    def __enter__(self):
        if self.engine == "docker":
            named = self.rig.track.env.get("DOCKER_HOST", "unix:///var/run/docker.sock")
            return Api(named.removeprefix("unix://"), "/v1.40/containers/{}/wait") if named.startswith("unix://") else None
        path = f"{self.rig.directory}/podman.sock"
        self.process = subprocess.Popen(["podman", "system", "service", "--time", "0", f"unix://{path}"], env=self.rig.track.env,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            if os.path.exists(path):
                # Docker's way of asking has Podman look four times a second.
                return Api(path, "/v4.0.0/libpod/containers/{}/wait?interval=5ms")
            time.sleep(0.02)
        return None

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()


def by_api(api, network):
    """One launch, step by step; where the guest ended is the engine's own note."""
    host = {**HARDENED, **({} if network == "default" else {"NetworkMode": network})}
    steps = {}
    steps["create"], made = api.ask("POST", "/containers/create", {"Image": IMAGE, "Cmd": ["true"], "HostConfig": host})
    at = f"/containers/{made['Id']}"
    steps["start"], _ = api.ask("POST", f"{at}/start")
    steps["wait"], _ = api.ask("POST", api.wait.format(made["Id"]))
    _, state = api.ask("GET", f"{at}/json")
    steps["remove"], _ = api.ask("DELETE", at)
    begun, ended = (moment(state["State"][name]) for name in ("StartedAt", "FinishedAt"))
    if begun and ended:
        # Both are noted a moment late.
        steps["guest"] = max(0, ended - begun) * 1000
    return steps


def moment(text):
    """Seconds, of a time as the engines write it."""
    found = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d+)", text)
    if not found:
        return None
    whole = datetime.datetime.fromisoformat(found[1]).replace(tzinfo=datetime.timezone.utc).timestamp()
    return whole + float(f"0.{found[2]}")


def exec_by_api(api, container):
    begun = time.perf_counter()
    _, made = api.ask("POST", f"/containers/{container}/exec", {"Cmd": ["true"], "AttachStdout": True, "AttachStderr": True})
    # The stream of the command's output ends with it, and with it the connection.
    api.request("POST", f"/v1.40/exec/{made['Id']}/start", json.dumps({"Detach": False, "Tty": False}), {"Content-Type": "application/json"})
    answer = api.getresponse()
    answer.read()
    api.close()
    return (time.perf_counter() - begun) * 1000


def by_client(rig, engine, network):
    """The same by the client: create, start and wait, remove."""
    wanted = [] if network == "default" else ["--network", network]
    done = lambda *words: subprocess.run([engine, *words], env=rig.track.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, text=True, check=True)
    # Podman looks four times a second unless told otherwise.
    often = ["--interval", "5ms"] if engine == "podman" else []
    steps, begun = {}, time.perf_counter()
    made = done("create", *FLAGS, *wanted, IMAGE, "true").stdout.strip()
    for name, words in (("create", None), ("start", ["start", made]), ("wait", ["wait", *often, made]), ("remove", ["rm", made])):
        if words:
            begun = time.perf_counter()
            done(*words)
        steps[name] = (time.perf_counter() - begun) * 1000
    return steps


def container(rig, engine):
    """Medians in milliseconds, all taken in turn."""
    run = lambda network: Command([engine, "run", "--rm", *FLAGS, *([] if network == "default" else ["--network", network]), IMAGE, "true"])
    resident = subprocess.run([engine, "run", "--rm", "--detach", "--network", "none", IMAGE, "sleep", "600"], env=rig.track.env,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.strip()
    taken = {}
    note = lambda name, ms: taken.setdefault(name, []).append(ms)
    try:
        with service(rig, engine) as api:
            for number in range(rig.few(4, 3) + 1):
                if number == 1:
                    # The first round warmed everything up.
                    taken.clear()
                note("client: its start", rig.track.time(Command([engine, "--version"]))[0] * 1000)
                note("client: a question", rig.track.time(Command([engine, "ps", "--quiet", "--filter", "name=nothing"]))[0] * 1000)
                note("client: exec", rig.track.time(Command([engine, "exec", resident, "true"]))[0] * 1000)
                for step, ms in by_client(rig, engine, "default").items():
                    note(f"client: {step}", ms)
                for network in NETWORKS:
                    note(f"client: run, network {network}", rig.track.time(run(network))[0] * 1000)
                    for step, ms in (by_api(api, network) if api else {}).items():
                        note(f"api: {step}, network {network}", ms)
                if api:
                    note("api: exec", exec_by_api(api, resident))
    finally:
        subprocess.run([engine, "rm", "--force", resident], env=rig.track.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    table = {name: statistics.median(values) for name, values in taken.items()}
    print(f"\n{engine}, step by step, ms")
    for name, ms in table.items():
        print(f"  {name:36} {ms:8.2f}")
    return table


MARKS = "execve,clone,clone3,pivot_root,umount2,rename,renameat,renameat2,exit_group"
# What has been done when a mark is seen: the mark's process (the launcher, the sandbox's first, the guest), and its line.
STEPS = (
    ("start, configuration, facts, plan", "launcher", r"^rename\w*\(.*\.new-"),
    ("the session's directory", "launcher", r"^clone3?\(.*NEWNS"),
    ("namespaces and mounts", "first", r"^pivot_root"),
    ("leaving the old root", "first", r"^umount2\(.*= 0|umount2 resumed"),
    ("confinement, the guest's start", "guest", r"execve(\(| resumed).*= 0$"),
    ("the guest", "guest", r"^exit_group"),
    ("exit and review", "launcher", r"^rename\w*\(.*\.old-"),
    ("removal and end", "launcher", r"^\+\+\+ exited"),
)


def native(rig):
    """sandpen's own steps, as strace sees a few marks of them; scaled to what an untraced launch takes."""
    command = rig.run("native", cwd=rig.repository("repository"))
    untraced, apart, asked, steps = [], [], [], []
    for _ in range(rig.few(2, 5)):
        untraced.append(rig.track.time(command)[0] * 1000)
        apart.append(rig.track.time(rig.run("native", "--network", "off", cwd=command.cwd))[0] * 1000)
        asked.append(rig.track.time(rig.run("native", cwd=command.cwd, env=ASK_GIT))[0] * 1000)
        if rig.has("strace") and (marks := traced(rig, command)):
            steps.append(marks)
    whole = statistics.median(untraced)
    table = {"whole": whole, "asked": statistics.median(asked), "off": statistics.median(apart)}
    if steps:
        scale = whole / statistics.median(sum(marks.values()) for marks in steps)
        table.update({name: statistics.median(marks[name] for marks in steps) * scale for name in steps[0]})
    table["exec"] = entering(rig)
    print("\nnative, step by step, ms" + ("" if steps else " (no strace: only the whole)"))
    for name, ms in table.items():
        print(f"  {name:36} {ms:8.2f}")
    return table


def traced(rig, command):
    """Milliseconds from mark to mark; None if one of them was not seen."""
    path = f"{rig.directory}/trace"
    rig.track.time(Command(["strace", "-f", "--seccomp-bpf", "-ttt", "-e", f"trace={MARKS}", "-o", path, *command.argv], cwd=command.cwd))
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


def entering(rig):
    """A further command in a sandbox that runs."""
    command = rig.run("native", "--name", "bench", command=("sleep", "60"))
    resident = subprocess.Popen(command.argv, cwd=rig.empty, env=rig.track.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
    enter = Command([rig.sandpen, "exec", "bench", "--", "true"])
    try:
        for _ in range(100):
            if rig.track.time(enter)[1] == 0:
                break
            time.sleep(0.02)
        return statistics.median(rig.track.time(enter)[0] * 1000 for _ in range(rig.rounds))
    finally:
        resident.terminate()
        resident.wait()
