"""Run commands in turn, so that load affects all of them equally, and compare them to the first."""
import os
import random
import statistics
import subprocess
import time

REFERENCE, REPEAT = "reference", "repeat"


class Command:
    """Describes a command. `env` extends the runner's environment, `title` is shown in tables."""

    def __init__(self, argv, cwd=None, env=None, title=None):
        self.argv, self.cwd, self.env, self.title = [str(argument) for argument in argv], cwd, env or {}, title


class Runner:
    """Runs commands in the same directory and environment, unless they name their own."""

    def __init__(self, directory, env):
        self.directory, self.env = directory, env
        self.null = os.open("/dev/null", os.O_RDWR)

    def time(self, command):
        """Run a command and return its duration in seconds and its exit code.

        posix_spawn is used because a fork of this interpreter takes longer than some commands.
        """
        os.chdir(command.cwd or self.directory)
        env = {**self.env, **command.env}
        streams = [(os.POSIX_SPAWN_DUP2, self.null, stream) for stream in (0, 1, 2)]
        started = time.perf_counter()
        pid = os.posix_spawnp(command.argv[0], command.argv, env, file_actions=streams)
        _, status = os.waitpid(pid, 0)
        return time.perf_counter() - started, os.waitstatus_to_exitcode(status)

    def failure_reason(self, command, timeout=120):
        """Return the reason why a command fails, or None if it succeeds."""
        try:
            done = subprocess.run(command.argv, cwd=command.cwd or self.directory, env={**self.env, **command.env}, timeout=timeout,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        except subprocess.TimeoutExpired:
            return f"timed out after {timeout} s"
        except FileNotFoundError:
            return "not installed"
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return None if done.returncode == 0 else f"does not run here: {lines[0][:120] if lines else f'exit code {done.returncode}'}"

    def compare(self, rounds, reference, others, with_repeat=True, pause=0):
        """Return a table that maps each name to its times and to its ratio to the reference.

        A command that fails gets the reason instead. `pause` is the time in seconds between
        commands, for those that leave work to a background process.
        """
        commands = {REFERENCE: reference, **({REPEAT: reference} if with_repeat else {}), **others}
        table = {}
        for name, command in list(commands.items()):
            if name != REPEAT and (reason := self.failure_reason(command)):
                table[name] = {"absent": reason}
                del commands[name]
        if REFERENCE not in commands:
            return table
        times = {name: [] for name in commands}
        order = list(commands.items())
        for _ in range(rounds):
            # What a command leaves to the kernel delays the one after it, which must not always be the same.
            random.shuffle(order)
            for name, command in order:
                times[name].append(self.time(command)[0])
                time.sleep(pause)
        for name, taken in times.items():
            table[name] = row(taken, times[REFERENCE], commands[name].title)
        return table


def row(taken, reference, title=None):
    ratios = [own / other for own, other in zip(taken, reference)]
    low, middle, high = quartiles(ratios)
    line = {"ms": statistics.median(taken) * 1000, "best_ms": min(taken) * 1000, "ratio": middle, "quartiles": [low, high]}
    return {**line, "command": title} if title else line


def quartiles(values):
    values = sorted(values)
    at = lambda part: values[round((len(values) - 1) * part)]
    return at(0.25), statistics.median(values), at(0.75)


def print_table(title, table):
    print(f"\n{title}")
    for name, line in table.items():
        if "absent" in line:
            print(f"  {name:44} {line['absent']}")
        else:
            low, high = line["quartiles"]
            print(f"  {name:44} {line['ms']:9.2f} ms  best {line['best_ms']:8.2f}  ratio {line['ratio']:6.2f}  ({low:.2f} – {high:.2f})")
