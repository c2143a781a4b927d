"""Measure the guest's terminal beside a bare pseudo-terminal: throughput and the echo of a key.

Both run the same programs below a pseudo-terminal that this script reads, in turn. The time of the
launch is not included: the clock starts with the first byte of output.
"""
import os
import pty
import select
import statistics
import time

MEGABYTES = int(os.environ.get("SANDPEN_BENCH_TERMINAL_MB", "1024"))
KEYS = 500
# The terminal turns each newline into two bytes, so lines of one character are its worst case.
BULK = f"yes | head -c {MEGABYTES}M"
ECHO = "echo ready; exec cat >/dev/null"


class Terminal:
    """A program that leads the session of a new pseudo-terminal."""

    def __init__(self, command, env, directory):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe(command[0], command, env)

    def read(self):
        try:
            return os.read(self.master, 1 << 16)
        except OSError:
            return b""

    def close(self):
        os.close(self.master)
        os.waitpid(self.pid, 0)


def throughput(command, env, directory):
    """Return the megabytes per second that the guest writes."""
    terminal = Terminal([*command, "sh", "-c", BULK], env, directory)
    total, started = len(terminal.read()), time.perf_counter()
    while got := terminal.read():
        total += len(got)
    taken = time.perf_counter() - started
    terminal.close()
    assert total >= MEGABYTES << 20, total
    return total / taken / 1e6


def echo(command, env, directory):
    """Return the median time until the terminal echoes a key, in milliseconds."""
    terminal = Terminal([*command, "sh", "-c", ECHO], env, directory)
    said = b""
    while b"ready" not in said:
        said += terminal.read()
    # The rest of that line.
    while select.select([terminal.master], [], [], 0.2)[0]:
        terminal.read()
    times = []
    for _ in range(KEYS):
        started = time.perf_counter()
        os.write(terminal.master, b"k")
        assert terminal.read() == b"k"
        times.append((time.perf_counter() - started) * 1000)
        time.sleep(0.001)
    os.write(terminal.master, b"\r\x04")
    while terminal.read():
        pass
    terminal.close()
    return statistics.median(times)


def measure(rig):
    env = rig.runner.env
    routes = {"bare pseudo-terminal": [], "sandpen, native": [rig.sandpen, "run", "--engine", "native", "--ssh-agent", "off", "--"]}
    rounds = rig.fewer_rounds(6)
    found = {name: {"mb_per_s": [], "echo_ms": []} for name in routes}
    for _ in range(rounds):
        for name, command in routes.items():
            found[name]["mb_per_s"].append(throughput(command, env, rig.empty))
            found[name]["echo_ms"].append(echo(command, env, rig.empty))
    bare = found["bare pseudo-terminal"]
    print(f"\nterminal ({rounds} rounds, {MEGABYTES} MB and {KEYS} keys each)")
    table = {}
    for name, own in found.items():
        table[name] = {
            "mb_per_s": statistics.median(own["mb_per_s"]),
            "ratio": statistics.median(mine / other for mine, other in zip(own["mb_per_s"], bare["mb_per_s"])),
            "echo_ms": statistics.median(own["echo_ms"]),
            "added_ms": statistics.median(mine - other for mine, other in zip(own["echo_ms"], bare["echo_ms"])),
        }
        row = table[name]
        print(f"  {name:22} {row['mb_per_s']:6.0f} MB/s ({row['ratio']:.2f})  echo of a key {row['echo_ms']:.3f} ms (+{row['added_ms']:.3f})")
    return table
