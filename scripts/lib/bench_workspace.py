"""Measure a copied workspace of 100,000 files and a node_modules of 50,000, compared to the directory itself."""
import os
import shutil
import statistics
import subprocess
import time

MODULES, CHANGED = 50_000, 1_000
SCRIPTS = {"launch": "true", "git status": "git status --short >/dev/null",
           "write 2,000 files": "mkdir -p out && for i in $(seq 2000); do echo $i >out/$i; done && rm -r out",
           "read all files": "tar cf - --exclude=./.git . | cat >/dev/null"}


def project(rig):
    """Create the repository once, with node_modules that Git ignores."""
    path = rig.repository("large", files=100_000)
    if not os.path.exists(f"{path}/node_modules"):
        for number in range(MODULES):
            directory = f"{path}/node_modules/p{number // 50}"
            os.makedirs(directory, exist_ok=True)
            with open(f"{directory}/f{number}.js", "w") as file:
                file.write("x\n" * 100)
        with open(f"{path}/.git/info/exclude", "a") as file:
            file.write("node_modules\n")
    return path


def measure(rig):
    """Run each script in turn in the directory itself and in a copy; compare `diff`, disk, and other ways to a copy."""
    path, env = project(rig), {**rig.runner.env, "HOME": rig.home}

    def timed(words, **where):
        started = time.perf_counter()
        subprocess.run(words, cwd=path, env=env, check=True, capture_output=True, **where)
        return time.perf_counter() - started

    def run(mode, script, *flags):
        return timed([rig.sandpen, "run", "-q", "--engine", "native", "--ssh-agent", "off", "--workspace", mode, *flags, "--", "sh", "-ec", script])

    results = {}
    for name, script in SCRIPTS.items():
        pairs = []
        for _ in range(rig.fewer_rounds(3, 5)):
            live, copy = run("live", script), run("copy", script)
            pairs.append((copy / live, live, copy))
            for left in copies(rig):
                timed([rig.sandpen, "discard", left])
        ratios = sorted(pair[0] for pair in pairs)
        results[name] = {"ratio": statistics.median(ratios), "q1": ratios[len(ratios) // 4], "q3": ratios[-1 - len(ratios) // 4],
                         "live_s": statistics.median(pair[1] for pair in pairs), "copy_s": statistics.median(pair[2] for pair in pairs)}
        print(f"  {name:18} live {results[name]['live_s']:.3f} s, copy {results[name]['copy_s']:.3f} s, ratio {results[name]['ratio']:.2f}", flush=True)
    run("copy", f"for i in $(seq 0 {CHANGED - 1}); do echo changed >d$((i / 100))/f$i; done", "--name", "bench")
    times = [timed([rig.sandpen, "diff", "bench"]) for _ in range(rig.fewer_rounds(3, 5))]
    used = int(subprocess.run(["du", "-sk", f"{rig.home}/.local/state/sandpen/copies"], capture_output=True, text=True, check=True).stdout.split()[0])
    results["diff of 1,000 files"] = {"copy_s": statistics.median(times)}
    results["disk"] = {"kb": used, "changed_kb": CHANGED * 4}
    timed([rig.sandpen, "discard", "bench"])
    other = rig.make_directory("other")
    for name, words in (("git worktree add", ["git", "worktree", "add", "--quiet", "--detach", f"{other}/worktree"]),
                        ("cp --archive --reflink=auto", ["cp", "--archive", "--reflink=auto", path, f"{other}/copy"])):
        results[name] = {"copy_s": timed(words)}
    subprocess.run(["git", "worktree", "remove", "--force", f"{other}/worktree"], cwd=path, env=env, check=True)
    shutil.rmtree(other)
    for name in ("diff of 1,000 files", "git worktree add", "cp --archive --reflink=auto"):
        print(f"  {name:28} {results[name]['copy_s']:.2f} s")
    print(f"  disk {used} kB for {CHANGED} changed files of one block each")
    return results


def copies(rig):
    directory = f"{rig.home}/.local/state/sandpen/copies"
    return os.listdir(directory) if os.path.isdir(directory) else []
