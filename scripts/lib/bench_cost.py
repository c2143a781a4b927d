"""What a launch costs more with an SSH agent, Git's configuration, mounts, a filtered network, many files, many neighbours."""
import os
import signal
import statistics
import subprocess
import time

from bench_launch import BWRAP_SHARED
from bench_race import Command, show
from bench_rig import ASK_GIT, FILES


class ssh_agent:
    """A real agent with one key, for the while; None where there is no OpenSSH."""

    def __init__(self, rig):
        self.rig, self.process = rig, None

    def __enter__(self):
        if not all(self.rig.has(program) for program in ("ssh-agent", "ssh-add", "ssh-keygen")):
            return None
        socket, key = f"{self.rig.directory}/agent", f"{self.rig.directory}/key"
        self.process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(socket) and self.process.poll() is None:
            time.sleep(0.01)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
        if not os.path.exists(key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], **quiet)
        subprocess.run(["ssh-add", "-q", key], env={**self.rig.track.env, "SSH_AUTH_SOCK": socket}, **quiet)
        return socket

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()


def extras(rig, engine):
    """Each beside a plain launch."""
    mounts = [word for number in range(8) for word in ("--mount", f"{rig.place(f'mounts/{number}')}:/mnt/{number}")]
    plain = rig.run(engine)
    with ssh_agent(rig) as agent:
        others = {
            "in a Git repository": rig.run(engine, cwd=rig.repository("repository")),
            "8 mounts": rig.run(engine, *mounts),
            "--network off": rig.run(engine, "--network", "off"),
            "--allow-host example.org": rig.run(engine, "--allow-host", "example.org"),
        }
        if agent:
            others["with an SSH agent"] = rig.run(engine, agent="auto", env={"SSH_AUTH_SOCK": agent})
        table = rig.track.race(rig.rounds if engine == "native" else rig.few(3, 5), plain, others)
    show(f"{engine}: what more costs", table)
    return table


def git_facts(rig):
    """Git's configuration with and without files that it includes; no repository is the reference."""
    repository = rig.repository("repository")
    included = rig.repository("with-includes", includes=True)
    table = rig.track.race(rig.rounds, rig.run("native"), {
        "a Git repository": rig.run("native", cwd=repository),
        "whose configuration includes others": rig.run("native", cwd=included),
        "without the guard": rig.run("native", "--guard", "off", cwd=repository),
        "Git asked anew": rig.run("native", cwd=repository, env=ASK_GIT),
    })
    os.remove(f"{rig.home}/.gitconfig")
    show("native: Git", table)
    return table


def many_files(rig, engine):
    """A large repository beside an empty one."""
    small, large = rig.repository("repository"), rig.repository("large", files=FILES)
    rounds = rig.rounds if engine == "native" else rig.few(3, 5)
    table = rig.track.race(rounds, rig.run(engine, cwd=small), {"100,000 files": rig.run(engine, cwd=large)}, rest=0.3)
    show(f"{engine}: a repository of 100,000 files beside an empty one", table)
    return table


class Crowd:
    """Sandboxes that run meanwhile."""

    AT_ONCE = 8

    def __init__(self, rig, engine):
        self.rig, self.engine, self.launchers = rig, engine, []

    def grow(self, size):
        started = []
        while len(self.launchers) < size:
            mark = f"{self.rig.directory}/home/empty/up-{len(self.launchers)}"
            command = self.rig.run(self.engine, command=("sh", "-c", f"touch {mark}; exec sleep 3600"))
            self.launchers.append(subprocess.Popen(command.argv, cwd=self.rig.empty, env=self.rig.track.env, stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            started.append(mark)
            while sum(not os.path.exists(mark) for mark in started[-2 * self.AT_ONCE:]) >= self.AT_ONCE:
                self.check()
                time.sleep(0.01)
        while not all(os.path.exists(mark) for mark in started):
            self.check()
            time.sleep(0.01)
        for mark in started:
            os.remove(mark)

    def check(self):
        if any(launcher.poll() is not None for launcher in self.launchers):
            raise RuntimeError("a sandbox that should run has ended")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher in self.launchers:
            launcher.send_signal(signal.SIGTERM)
        for launcher in self.launchers:
            launcher.wait()


def neighbours(rig, engine, levels):
    """A launch with so many others running, beside the bare engine at the same time. `growth` is what counts: how much the ratio
    of the two has grown since there was nobody else."""
    bare = Command(BWRAP_SHARED) if engine == "native" else rig.bare(engine)
    table, alone = {}, None
    with Crowd(rig, engine) as crowd:
        for level in levels:
            crowd.grow(level)
            time.sleep(0.5)
            race = rig.track.race(rig.rounds if engine == "native" else rig.few(3, 5), bare, {"sandpen": rig.run(engine)}, with_twin=False)
            if "ratio" not in race.get("sandpen", {}):
                return {}
            alone = alone or race
            listing = Command([rig.sandpen, "ps"])
            table[str(level)] = {
                "sandpen_ms": race["sandpen"]["ms"], "bare_ms": race["reference"]["ms"],
                "sandpen_growth": race["sandpen"]["ms"] / alone["sandpen"]["ms"], "bare_growth": race["reference"]["ms"] / alone["reference"]["ms"],
                "growth": race["sandpen"]["ratio"] / alone["sandpen"]["ratio"],
                "ps_ms": statistics.median(rig.track.time(listing)[0] * 1000 for _ in range(5))}
    print(f"\n{engine}: with others running")
    for level, line in table.items():
        print(f"  {level:>4}  sandpen {line['sandpen_ms']:8.2f} ms ({line['sandpen_growth']:.2f})  bare {line['bare_ms']:8.2f} ms "
              f"({line['bare_growth']:.2f})  sandpen's growth / the bare engine's {line['growth']:.2f}  ps {line['ps_ms']:.1f} ms")
    return table
