"""Runs commands in turn, round by round, so that load hits all alike, and takes medians of the per-round ratios to the first."""
import os
import statistics
import subprocess
import time

REFERENCE, TWIN = "reference", "twin"


class Command:
    """What is run, where, and with what in its environment beyond everyone's."""

    def __init__(self, argv, cwd=None, env=None, shown=None):
        self.argv, self.cwd, self.env, self.shown = [str(word) for word in argv], cwd, env or {}, shown


class Track:
    """Where commands run: a directory and an environment that are the same for all."""

    def __init__(self, directory, env):
        self.directory, self.env = directory, env
        self.null = os.open("/dev/null", os.O_RDWR)

    def time(self, command):
        """Seconds from the start to the end, and the exit code. posix_spawn: a fork of this interpreter would take longer than
        some of what is measured."""
        os.chdir(command.cwd or self.directory)
        env = {**self.env, **command.env}
        streams = [(os.POSIX_SPAWN_DUP2, self.null, stream) for stream in (0, 1, 2)]
        begun = time.perf_counter()
        pid = os.posix_spawnp(command.argv[0], command.argv, env, file_actions=streams)
        _, status = os.waitpid(pid, 0)
        return time.perf_counter() - begun, os.waitstatus_to_exitcode(status)

    def trouble(self, command, patience=120):
        """Why a command does not run here; None if it does."""
        try:
            done = subprocess.run(command.argv, cwd=command.cwd or self.directory, env={**self.env, **command.env}, timeout=patience,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        except subprocess.TimeoutExpired:
            return f"it did not end within {patience} s"
        except FileNotFoundError:
            return "not installed"
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return None if done.returncode == 0 else f"does not run here: {lines[0][:120] if lines else f'exit code {done.returncode}'}"

    def race(self, rounds, reference, others, with_twin=True, rest=0):
        """A table: name to median and best time, ratio to the reference and its quartiles; what does not run says why. With a rest
        where a command leaves work behind that would fall on the next."""
        commands = {REFERENCE: reference, **({TWIN: reference} if with_twin else {}), **others}
        table = {}
        for name, command in list(commands.items()):
            if name != TWIN and (why := self.trouble(command)):
                table[name] = {"absent": why}
                del commands[name]
        if REFERENCE not in commands:
            return table
        times = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(self.time(command)[0])
                time.sleep(rest)
        for name, taken in times.items():
            table[name] = row(taken, times[REFERENCE], commands[name].shown)
        return table


def row(taken, reference, shown=None):
    """One line of a table."""
    ratios = [mine / theirs for mine, theirs in zip(taken, reference)]
    low, middle, high = quartiles(ratios)
    line = {"ms": statistics.median(taken) * 1000, "best_ms": min(taken) * 1000, "ratio": middle, "quartiles": [low, high]}
    return {**line, "command": shown} if shown else line


def quartiles(values):
    values = sorted(values)
    at = lambda part: values[round((len(values) - 1) * part)]
    return at(0.25), statistics.median(values), at(0.75)


def show(title, table):
    """The table in the terminal."""
    print(f"\n{title}")
    for name, line in table.items():
        if "absent" in line:
            print(f"  {name:44} {line['absent']}")
        else:
            low, high = line["quartiles"]
            print(f"  {name:44} {line['ms']:9.2f} ms  best {line['best_ms']:8.2f}  ratio {line['ratio']:6.2f}  ({low:.2f} – {high:.2f})")
