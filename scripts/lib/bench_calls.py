"""How sandpen deals with an engine's client: the time until it calls it, how often it does, and what is held while the guest runs."""
import json
import os
import shutil
import statistics
import subprocess
import time

from bench_launch import BWRAP
from bench_race import Command
from bench_rig import IMAGE

# Says when it was started. A builtin of bash: no further process.
STAMP = '#!/bin/bash\necho "$EPOCHREALTIME" >"${0%/*}/../stamp"\n'
COUNT = '#!/bin/sh\necho >>"${0%/*}/../calls"\nexec REAL "$@"\n'


def stand_in(rig, engine, name, text):
    directory = rig.place(f"{name}-{engine}/bin")
    with open(f"{directory}/{engine}", "w") as file:
        file.write(text)
    os.chmod(f"{directory}/{engine}", 0o755)
    return os.path.dirname(directory), {"PATH": f"{directory}:{rig.track.env['PATH']}"}


def until_called(rig, engine):
    """From sandpen's start to its engine's: what a stand-in for the client noted, less what the same takes when it is called directly."""
    directory, env = stand_in(rig, engine, "stamp", STAMP)
    noted = f"{directory}/stamp"

    def measure(command):
        if os.path.exists(noted):
            os.remove(noted)
        begun = time.time()
        rig.track.time(command)
        return (float(open(noted).read()) - begun) * 1000 if os.path.exists(noted) else None

    through, direct = rig.run(engine, env=env), Command([f"{directory}/bin/{engine}"])
    repository = rig.run(engine, env=env, cwd=rig.repository("repository"))
    taken = [(measure(direct), measure(through), measure(repository)) for _ in range(rig.rounds)]
    if any(None in line for line in taken):
        return None
    return {"ms": statistics.median(line[1] - line[0] for line in taken),
            "in_repository_ms": statistics.median(line[2] - line[0] for line in taken)}


def processes(rig, engine):
    """How many of the engine's processes one launch takes."""
    directory, env = stand_in(rig, engine, "count", COUNT.replace("REAL", rig.has(engine)))
    rig.track.time(rig.run(engine, env=env))
    try:
        return len(open(f"{directory}/calls").read().splitlines())
    except FileNotFoundError:
        return 0


def calls(rig, engine):
    found = {"until_called": until_called(rig, engine), "processes": processes(rig, engine)}
    until = found["until_called"]
    shown = f"{until['ms']:.2f} ms, in a Git repository {until['in_repository_ms']:.2f} ms" if until else "not seen"
    print(f"\n{engine}: until its client is called {shown}; {found['processes']} of its processes per launch")
    return found


def descendants(pid):
    found, open_ = [], [pid]
    while open_:
        pid = open_.pop()
        found.append(pid)
        try:
            open_.extend(int(child) for task in os.listdir(f"/proc/{pid}/task")
                         for child in open(f"/proc/{pid}/task/{task}/children").read().split())
        except OSError:
            pass
    return found


def pss(pid):
    """In kB; None where it may not be read, or the process is gone."""
    try:
        return next(int(line.split()[1]) for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return None


def name(pid):
    try:
        return open(f"/proc/{pid}/comm").read().strip()
    except OSError:
        return ""


def helper(rig, engine, launcher):
    """The process of sandpen's that is first in the container: no descendant of the launcher's, but held all the same."""
    ask = lambda *argv: subprocess.run(argv, env=rig.track.env, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    names = [line["name"] for line in json.loads(ask(rig.sandpen, "ps", "--format", "json") or "[]") if line["pid"] == launcher]
    return [int(pid) for name in names for pid in ask(engine, "inspect", "--format", "{{.State.Pid}}", name).split() if pid != "0"]


def memory(rig, engines):
    """PSS while the guest sleeps: of the whole tree of processes on the host, and of sandpen's helper in the container; the guest
    itself left out."""
    sleep = ["sleep", "12"]
    launchers = {"sandpen, native": rig.run("native", command=sleep), "bubblewrap": Command([*BWRAP[:-1], *sleep]),
                 "firejail": Command(["firejail", "--quiet", "--noprofile", *sleep]), "srt": Command(["srt", *sleep]),
                 "codex": Command(["codex", "sandbox", "--", *sleep])}
    for engine in engines:
        launchers[f"sandpen, {engine}"] = rig.run(engine, command=sleep)
        launchers[f"{engine} run"] = Command([engine, "run", "--rm", IMAGE, *sleep])
    table = {}
    for title, command in launchers.items():
        if not shutil.which(command.argv[0], path=rig.track.env["PATH"]):
            continue
        process = subprocess.Popen(command.argv, cwd=rig.empty, env=rig.track.env, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2.5)
        inside = helper(rig, title.split()[1], process.pid) if title.startswith("sandpen,") and "native" not in title else []
        tree = [(pid, name(pid), pss(pid)) for pid in [*descendants(process.pid), *inside]]
        own = [held for pid, comm, held in tree if comm == "sandpen"]
        held = [held for _, comm, held in tree if comm != "sleep"]
        if process.poll() is None:
            table[title] = {"kb": sum(held) if None not in held else None, "processes": len(held)}
            if title.startswith("sandpen"):
                table[title]["own_kb"] = [kb for kb in own if kb is not None]
        process.terminate()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    print("\nPSS while the guest sleeps, kB")
    for title, line in table.items():
        own = f"  sandpen's own {line['own_kb']}" if "own_kb" in line else ""
        print(f"  {title:28} {line['kb']}  in {line['processes']} processes{own}")
    return table
