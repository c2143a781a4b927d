"""Measure when and how often sandpen calls an engine's client, and the memory of a launch."""
import json
import os
import shutil
import statistics
import subprocess
import time

from bench_compare import Command
from bench_launch import BWRAP
from bench_rig import IMAGE

# Records its start time. $EPOCHREALTIME of bash needs no further process.
TIMESTAMP_CLIENT = '#!/bin/bash\necho "$EPOCHREALTIME" >"${0%/*}/../stamp"\n'
COUNTING_CLIENT = '#!/bin/sh\necho >>"${0%/*}/../calls"\nexec REAL "$@"\n'


def write_fake_client(rig, engine, name, text):
    directory = rig.make_directory(f"{name}-{engine}/bin")
    with open(f"{directory}/{engine}", "w") as file:
        file.write(text)
    os.chmod(f"{directory}/{engine}", 0o755)
    return os.path.dirname(directory), {"PATH": f"{directory}:{rig.runner.env['PATH']}"}


def time_until_called(rig, engine):
    """Return the time from the start of sandpen to that of the engine's client.

    A fake client records when it starts. The time that a direct call of it takes is subtracted.
    """
    directory, env = write_fake_client(rig, engine, "stamp", TIMESTAMP_CLIENT)
    recorded = f"{directory}/stamp"

    def measure(command):
        if os.path.exists(recorded):
            os.remove(recorded)
        started = time.time()
        rig.runner.time(command)
        return (float(open(recorded).read()) - started) * 1000 if os.path.exists(recorded) else None

    through, direct = rig.run(engine, env=env), Command([f"{directory}/bin/{engine}"])
    repository = rig.run(engine, env=env, cwd=rig.repository("repository"))
    taken = [(measure(direct), measure(through), measure(repository)) for _ in range(rig.rounds)]
    if any(None in line for line in taken):
        return None
    return {"ms": statistics.median(line[1] - line[0] for line in taken),
            "in_repository_ms": statistics.median(line[2] - line[0] for line in taken)}


def processes(rig, engine):
    """Return how often one launch starts the engine's client."""
    directory, env = write_fake_client(rig, engine, "count", COUNTING_CLIENT.replace("REAL", rig.has(engine)))
    rig.runner.time(rig.run(engine, env=env))
    try:
        return len(open(f"{directory}/calls").read().splitlines())
    except FileNotFoundError:
        return 0


def calls(rig, engine):
    found = {"until_called": time_until_called(rig, engine), "processes": processes(rig, engine)}
    until = found["until_called"]
    duration = f"{until['ms']:.2f} ms, in a Git repository {until['in_repository_ms']:.2f} ms" if until else "not measured"
    print(f"\n{engine}: time until the client is called: {duration}; client processes per launch: {found['processes']}")
    return found


def descendants(pid):
    found, pending = [], [pid]
    while pending:
        pid = pending.pop()
        found.append(pid)
        try:
            pending.extend(int(child) for task in os.listdir(f"/proc/{pid}/task")
                           for child in open(f"/proc/{pid}/task/{task}/children").read().split())
        except OSError:
            pass
    return found


def pss(pid):
    """Return the PSS in kB, or None if it is not readable or the process has exited."""
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
    """Return the pid of the helper in the container, which is no descendant of the launcher."""
    output_of = lambda *argv: subprocess.run(argv, env=rig.runner.env, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    names = [line["name"] for line in json.loads(output_of(rig.sandpen, "ps", "--format", "json") or "[]") if line["pid"] == launcher]
    return [int(pid) for name in names for pid in output_of(engine, "inspect", "--format", "{{.State.Pid}}", name).split() if pid != "0"]


def memory(rig, engines):
    """Measure the PSS of the launcher's process tree and of sandpen's helper, without the guest."""
    sleep = ["sleep", "12"]
    launchers = {"sandpen, native": rig.run("native", command=sleep), "bubblewrap": Command([*BWRAP[:-1], *sleep]),
                 "firejail": Command(["firejail", "--quiet", "--noprofile", *sleep]), "srt": Command(["srt", *sleep]),
                 "codex": Command(["codex", "sandbox", "--", *sleep])}
    for engine in engines:
        launchers[f"sandpen, {engine}"] = rig.run(engine, command=sleep)
        launchers[f"{engine} run"] = Command([engine, "run", "--rm", IMAGE, *sleep])
    table = {}
    for title, command in launchers.items():
        if not shutil.which(command.argv[0], path=rig.runner.env["PATH"]):
            continue
        process = subprocess.Popen(command.argv, cwd=rig.empty, env=rig.runner.env, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2.5)
        inside = helper(rig, title.split()[1], process.pid) if title.startswith("sandpen,") and "native" not in title else []
        tree = [(pid, name(pid), pss(pid)) for pid in [*descendants(process.pid), *inside]]
        own = [kb for pid, comm, kb in tree if comm == "sandpen"]
        sizes = [kb for _, comm, kb in tree if comm != "sleep"]
        if process.poll() is None:
            table[title] = {"kb": sum(sizes) if None not in sizes else None, "processes": len(sizes)}
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
        own = f"  sandpen's processes {line['own_kb']}" if "own_kb" in line else ""
        print(f"  {title:28} {line['kb']}  in {line['processes']} processes{own}")
    return table
