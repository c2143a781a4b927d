"""Measure how features, large repositories and other running sandboxes affect the launch time."""
import os
import signal
import statistics
import subprocess
import time

from bench_compare import Command, print_table
from bench_launch import BWRAP_HOST_NETWORK
from bench_rig import FILES, START_GIT


TEN_REFS, MANY_REFS = "a Git repository, 10 branches", "a Git repository, 100,000 files, 10,000 branches"


class ssh_agent:
    """Runs an SSH agent with one key and yields its socket, or None if OpenSSH is not installed."""

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
        subprocess.run(["ssh-add", "-q", key], env={**self.rig.runner.env, "SSH_AUTH_SOCK": socket}, **quiet)
        return socket

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()


def extras(rig, engine):
    """Compare launches with one additional feature each to a plain launch."""
    mounts = [argument for number in range(8) for argument in ("--mount", f"{rig.make_directory(f'mounts/{number}')}:/mnt/{number}")]
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
        table = rig.runner.compare(rig.rounds if engine == "native" else rig.fewer_rounds(3, 5), plain, others)
    print_table(f"additional features on {engine}", table)
    return table


def git_facts(rig):
    """Compare launches in Git repositories to a launch in a plain directory."""
    repository = rig.repository("repository")
    branches = rig.repository("branches", refs=10)
    large = rig.repository("large-with-branches", files=FILES, refs=10_000)
    included = rig.repository("with-includes", includes=True)
    table = rig.runner.compare(rig.rounds, rig.run("native"), {
        "a Git repository": rig.run("native", cwd=repository),
        TEN_REFS: rig.run("native", cwd=branches),
        MANY_REFS: rig.run("native", cwd=large),
        "a Git repository, config with includes": rig.run("native", cwd=included),
        "a Git repository, --git shared": rig.run("native", "--git", "shared", cwd=repository),
        "a Git repository, Git started": rig.run("native", cwd=repository, env=START_GIT),
    })
    os.remove(f"{rig.home}/.gitconfig")
    print_table("Git repositories on native", table)
    return table


def commit(rig):
    """Compare a commit in a private repository, which has to be brought out, to one in the host's."""
    repository = rig.repository("commits")
    script = "echo a line >> file; git add file; git -c user.name=bench -c user.email=bench@example.org commit -q -m message"
    run = lambda mode: rig.run("native", "--git", mode, command=("sh", "-c", script), cwd=repository)
    table = rig.runner.compare(rig.rounds, run("shared"), {"private": run("private")}, with_repeat=False)
    print_table("a commit on native, compared to --git shared", table)
    return table


def many_files(rig, engine):
    """Compare launches in a large repository to launches in an empty one."""
    small, large = rig.repository("repository"), rig.repository("large", files=FILES)
    rounds = rig.rounds if engine == "native" else rig.fewer_rounds(3, 5)
    table = rig.runner.compare(rounds, rig.run(engine, cwd=small), {"100,000 files": rig.run(engine, cwd=large)}, pause=0.3)
    print_table(f"large repository on {engine}, compared to an empty one", table)
    return table


class RunningSandboxes:
    """Starts sandboxes that run during a measurement, and stops them at the end."""

    MAX_STARTING = 8

    def __init__(self, rig, engine):
        self.rig, self.engine, self.launchers = rig, engine, []

    def start_up_to(self, size):
        started = []
        while len(self.launchers) < size:
            marker = f"{self.rig.directory}/home/empty/up-{len(self.launchers)}"
            command = self.rig.run(self.engine, command=("sh", "-c", f"touch {marker}; exec sleep 3600"))
            self.launchers.append(subprocess.Popen(command.argv, cwd=self.rig.empty, env=self.rig.runner.env, stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            started.append(marker)
            while sum(not os.path.exists(marker) for marker in started[-2 * self.MAX_STARTING:]) >= self.MAX_STARTING:
                self.check()
                time.sleep(0.01)
        while not all(os.path.exists(marker) for marker in started):
            self.check()
            time.sleep(0.01)
        for marker in started:
            os.remove(marker)

    def check(self):
        if any(launcher.poll() is not None for launcher in self.launchers):
            raise RuntimeError("a background sandbox exited early")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher in self.launchers:
            launcher.send_signal(signal.SIGTERM)
        for launcher in self.launchers:
            launcher.wait()


def with_other_sandboxes(rig, engine, levels):
    """Compare launches to the bare engine while other sandboxes run.

    `growth` is the ratio of sandpen to the bare engine, divided by the same ratio without other
    sandboxes.
    """
    bare = Command(BWRAP_HOST_NETWORK) if engine == "native" else rig.bare(engine)
    table, baseline = {}, None
    with RunningSandboxes(rig, engine) as running:
        for level in levels:
            running.start_up_to(level)
            time.sleep(0.5)
            compared = rig.runner.compare(rig.rounds if engine == "native" else rig.fewer_rounds(3, 5), bare, {"sandpen": rig.run(engine)}, with_repeat=False)
            if "ratio" not in compared.get("sandpen", {}):
                return {}
            baseline = baseline or compared
            listing = Command([rig.sandpen, "ps"])
            table[str(level)] = {
                "sandpen_ms": compared["sandpen"]["ms"], "bare_ms": compared["reference"]["ms"],
                "sandpen_growth": compared["sandpen"]["ms"] / baseline["sandpen"]["ms"], "bare_growth": compared["reference"]["ms"] / baseline["reference"]["ms"],
                "growth": compared["sandpen"]["ratio"] / baseline["sandpen"]["ratio"],
                "ps_ms": statistics.median(rig.runner.time(listing)[0] * 1000 for _ in range(5))}
    print(f"\nlaunch on {engine} while other sandboxes run")
    for level, line in table.items():
        print(f"  {level:>4}  sandpen {line['sandpen_ms']:8.2f} ms ({line['sandpen_growth']:.2f})  bare {line['bare_ms']:8.2f} ms "
              f"({line['bare_growth']:.2f})  growth of the ratio {line['growth']:.2f}  ps {line['ps_ms']:.1f} ms")
    return table
