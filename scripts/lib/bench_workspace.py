"""Measure a copied workspace of 100,000 files and a node_modules of 50,000, compared to the directory itself.

The overlay of the kernel has costs of its own. They are measured as well, without sandpen: an overlay
mounted by hand over the same directory, in the same rounds. Work is timed where it runs, without the launch.
"""
import os
import shutil
import statistics
import subprocess
import time

from bench_workspace_projects import PROJECTS, large

CHANGED = 1_000
TIMED = 't=$(date +%s%N); {{ {script}; }} >/dev/null 2>&1; echo $(($(date +%s%N) - t));'
# In one sandbox after another: what is looked at for the first time, and again.
WORK = {"git status, first": "git status --short", "git status, again": "git status --short",
        "read all files, first": "tar cf - --exclude=./.git . | cat", "read all files, again": "tar cf - --exclude=./.git . | cat",
        "write 2,000 files": "mkdir -p out && for i in $(seq 2000); do echo $i >out/$i; done && rm -r out"}
OTHER_COPIES = {
    "git worktree add": 'git worktree add --quiet --detach "$0/worktree"',
    "cp --archive --reflink=auto": 'cp --archive --reflink=auto . "$0/copy"',
    "as yoloAI copies (its steps, not its program): files that are not ignored, git init, add, commit":
        'mkdir "$0/work" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --archive --reflink=auto --parents -t "$0/work" && cd "$0/work" '
        "&& git init --quiet && git add --all && git -c user.name=b -c user.email=b@example.org -c gc.auto=0 commit --quiet --message baseline",
}


class Ways:
    """Runs a script in a directory: directly, below a bare overlay, and in a sandbox over it or over a copy."""

    def __init__(self, rig, path, flags=()):
        self.rig, self.path, self.flags = rig, path, list(flags)
        self.env = {**rig.runner.env, "HOME": rig.home}

    def start(self, words):
        found = subprocess.run(words, cwd=self.path, env=self.env, capture_output=True, text=True)
        if found.returncode:
            raise ValueError(found.stderr.strip()[-300:])
        return found.stdout

    def sandbox(self, mode, script, *flags):
        return self.start([self.rig.sandpen, "run", "-q", "--engine", "native", "--ssh-agent", "off", "--workspace", mode, *self.flags, *flags,
                           "--", "sh", "-ec", script])

    def directory(self, script):
        return self.start(["sh", "-ec", script])

    def overlay(self, script):
        layers = self.rig.make_directory("overlay")
        for name in ("upper", "work"):
            os.makedirs(f"{layers}/{name}")
        options = f"lowerdir={self.path},upperdir={layers}/upper,workdir={layers}/work,userxattr,volatile"
        namespaces = ["--mount"] if os.getuid() == 0 else ["--mount", "--user", "--map-root-user"]
        mount = f'mount -t overlay overlay -o "{options}" "$PWD" && cd "$PWD" && {script}'
        try:
            return self.start(["unshare", *namespaces, "sh", "-ec", mount])
        finally:
            shutil.rmtree(layers)

    def live(self, script):
        return self.sandbox("live", script)

    def copy(self, script):
        try:
            return self.sandbox("copy", script)
        finally:
            discard_all(self)


def discard_all(ways):
    for left in os.listdir(f"{ways.rig.home}/.local/state/sandpen/copies"):
        ways.start([ways.rig.sandpen, "discard", left])


def quartiles(values):
    values = sorted(values)
    return {"ratio": statistics.median(values), "q1": values[len(values) // 4], "q3": values[-1 - len(values) // 4]}


def compare(ways, work, rounds, before=""):
    """Run all of the work in each way in turn, and return a row for each part of it."""
    script = before + " ".join(TIMED.format(script=part) for part in work.values())
    names = ("directory", "overlay", "live", "copy")
    times = {name: [] for name in names}
    for number in range(rounds):
        # Another order each time.
        for name in names[number % 4:] + names[:number % 4]:
            times[name].append([int(line) / 1e9 for line in getattr(ways, name)(script).split()])
    rows = {}
    for at, part in enumerate(work):
        of = lambda name: [one[at] for one in times[name]]
        pairs = lambda one, other: [a / b for a, b in zip(of(one), of(other))]
        overlay, copy = quartiles(pairs("overlay", "directory")), quartiles(pairs("copy", "live"))
        rows[part] = {**copy, "overlay_ratio": overlay["ratio"], "beyond_overlay": statistics.median(pairs("copy", "overlay")),
                      **{f"{name}_s": statistics.median(of(name)) for name in names}}
        row = rows[part]
        print(f"  {part:22} directory {row['directory_s']:.3f} s, bare overlay {row['overlay_s']:.3f} s ({row['overlay_ratio']:.2f}), "
              f"live {row['live_s']:.3f} s, copy {row['copy_s']:.3f} s ({row['ratio']:.2f})", flush=True)
    return rows


def launches(ways, rounds):
    times = {"live": [], "copy": []}
    for number in range(rounds):
        for mode in ("live", "copy") if number % 2 else ("copy", "live"):
            started = time.perf_counter()
            ways.sandbox(mode, "true")
            times[mode].append(time.perf_counter() - started)
    found = quartiles([copy / live for copy, live in zip(times["copy"], times["live"])])
    return {**found, "live_s": statistics.median(times["live"]), "copy_s": statistics.median(times["copy"])}


def used(*paths):
    """Return the space of directories in kilobytes; files with several names count once."""
    return sum(int(line.split()[0]) for line in subprocess.run(["du", "-sk", *paths], capture_output=True, text=True, check=True).stdout.splitlines())


def measure(rig):
    ways = Ways(rig, large(rig))
    rounds = rig.fewer_rounds(3, 5)
    results = {"launch": launches(ways, rig.rounds)}
    print("  launch                 live {live_s:.4f} s, copy {copy_s:.4f} s, ratio {ratio:.2f} ({q1:.2f}-{q3:.2f})".format(**results["launch"]), flush=True)
    results.update(compare(ways, WORK, rounds))
    for name, prepare in PROJECTS.items():
        try:
            path, flags, before, script = prepare(rig)
            results.update(compare(Ways(rig, path, flags), {name: script}, rounds, before))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"  {name}: left out: {error}")
    copies = f"{rig.home}/.local/state/sandpen/copies"
    before = used(ways.path)
    ways.sandbox("copy", f"for i in $(seq 0 {CHANGED - 1}); do echo changed >d$((i / 100))/f$i; done", "--name", "bench")
    results["disk"] = {"kb": used(ways.path, copies) - before, "changed_kb": CHANGED * 4}
    print(f"  disk {results['disk']['kb']} kB for {CHANGED} changed files of one block each")
    others = {"diff of 1,000 files": [rig.sandpen, "diff", "bench"]}
    other = rig.make_directory("other")
    others.update({name: ["sh", "-ec", script, other] for name, script in OTHER_COPIES.items()})
    for name, words in others.items():
        times = []
        for _ in range(rig.fewer_rounds(3, 5) if words[0] == rig.sandpen else 1):
            started = time.perf_counter()
            ways.start(words)
            times.append(time.perf_counter() - started)
        results[name] = {"copy_s": statistics.median(times)}
        print(f"  {name:28} {results[name]['copy_s']:.2f} s", flush=True)
    ways.start([rig.sandpen, "discard", "bench"])
    ways.start(["git", "worktree", "remove", "--force", f"{other}/worktree"])
    shutil.rmtree(other)
    return results
