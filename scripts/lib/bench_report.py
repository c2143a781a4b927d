"""Turns the figures into a summary against the goals, into the generated part of docs/benchmarks.md, and into its chart."""
import os

import bench_chart
import bench_map
from bench_rig import HERE

BEGIN, END = "<!-- what follows is written by scripts/bench --docs -->", "<!-- what precedes is written by scripts/bench --docs -->"


def goals(results):
    """What is to be reached: the figure, its limit, what was measured, whether it was reached."""
    found = []

    def goal(figure, limit, measured, shown="{:.2f}"):
        if measured is not None:
            found.append((figure, shown.format(limit), shown.format(measured), measured <= limit))

    for engine in ("docker", "podman"):
        table = results.get(engine, {})
        if "ratio" in table.get("sandpen", {}):
            goal(f"{engine}: a launch / bare `{engine} run` with the same flags (limit: the twin's upper quartile)",
                 table["twin"]["quartiles"][1], table["sandpen"]["ratio"])
    table = results.get("native", {})
    if "ratio" in table.get("sandpen", {}):
        goal("native / bubblewrap", 1.0, table["sandpen"]["ratio"])
        goal("native in a Git repository / bubblewrap", 1.0, table["sandpen, in a Git repository"]["ratio"])
    for engine, calls in results.get("calls", {}).items():
        goal(f"{engine}: engine processes per launch", 1, calls["processes"], "{}")
        if calls["until_called"]:
            goal(f"{engine}: sandpen's own time until the engine is called", 5, calls["until_called"]["ms"], "{:.1f} ms")
            goal("… in a Git repository", 5, calls["until_called"]["in_repository_ms"], "{:.1f} ms")
    for title, line in results.get("memory", {}).items():
        if line.get("own_kb"):
            goal(f"{title}: PSS of sandpen's processes while the guest runs", 2.0, sum(line["own_kb"]) / 1000, "{:.2f} MB")
    for engine, levels in results.get("neighbours", {}).items():
        if "100" in levels:
            goal(f"{engine}: growth of a launch with 100 others running / the bare engine's", 1.1, levels["100"]["growth"])
    if line := results.get("files", {}).get("100,000 files"):
        goal("native: a launch in a repository of 100,000 files / in an empty one", 1.05, line["ratio"])
    goal("binary, stripped", 6.0, results["binary_bytes"] / 1e6, "{:.1f} MB")
    return found


def summary(results):
    for figure, limit, measured, is_reached in goals(results):
        print(f"  {'reached' if is_reached else 'MISSED ':8} {figure}: {measured} (at most {limit})")


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def race(title, table, reference=None):
    """One race as a table."""
    if not table:
        return []
    lines = [f"### {title}", "", row("", "median", "ratio", "quartiles"), "|---|---|---|---|"]
    for name, line in table.items():
        shown = {"reference": reference or line.get("command", "the reference"), "twin": "its twin"}.get(name, name)
        if "absent" in line:
            lines.append(row(shown, plain(line["absent"]), "", ""))
        else:
            spread = "" if name == "reference" else f"{line['quartiles'][0]:.2f}–{line['quartiles'][1]:.2f}"
            lines.append(row(shown, f"{line['ms']:.1f} ms", f"{line['ratio']:.2f}", spread))
    return [*lines, ""]


def plain(text):
    """Of a program's words, what a table can hold, and nothing of this machine's paths."""
    return " ".join(word for word in text.replace("|", " ").split() if "/" not in word)


def neighbours(table):
    lines = ["### With others running", "",
             "Growth is against a launch with nobody else there; the last column is sandpen's growth over the bare engine's at the same time.",
             "", row("engine", "others", "sandpen", "growth", "bare", "growth", "sandpen's / bare's"), "|---|---|---|---|---|---|---|"]
    for engine, levels in table.items():
        for level, line in levels.items():
            lines.append(row(engine, level, f"{line['sandpen_ms']:.1f} ms", f"{line['sandpen_growth']:.2f}", f"{line['bare_ms']:.1f} ms",
                             f"{line['bare_growth']:.2f}", f"{line['growth']:.2f}"))
    return [*lines, ""]


def memory(table):
    lines = ["### Memory while the guest sleeps", "", "PSS of all processes on the host's side, the guest left out; of sandpen also its own.", "",
             row("", "all", "processes", "sandpen's own"), "|---|---|---|---|"]
    for title, line in table.items():
        own = " + ".join(f"{kb / 1000:.2f} MB" for kb in line.get("own_kb", []))
        lines.append(row(title, f"{line['kb'] / 1000:.1f} MB" if line["kb"] else "not readable", line["processes"], own))
    return [*lines, ""]


def proxy(table):
    lines = ["### The proxy", "", row("", "", "MB/s", "ratio", "connections/s", "ratio"), "|---|---|---|---|---|---|"]
    for kind, ways in table.items():
        for name, line in ways.items():
            lines.append(row(kind, name, f"{line['mb_per_s']:.0f}", f"{line['ratio_throughput']:.2f}",
                             f"{line['connections_per_s']:.0f}", f"{line['ratio_connections']:.2f}"))
    return [*lines, ""]


def taken_on(results):
    machine, versions = results["machine"], results["versions"]
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version and name != "sandpen")
    absent = [name for name, version in versions.items() if not version]
    return [f"Taken on {results['date']} on {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, "
            f"Linux {machine['kernel']}, as {machine['user']}, load {machine['load']} at the start, {results['rounds']} rounds; {there}."
            + (f" Absent: {', '.join(absent)}." if absent else ""), ""]


def page(results):
    """The generated part."""
    lines = taken_on(results)
    lines += [row("figure", "at most", "measured", ""), "|---|---|---|---|"]
    lines += [row(figure, limit, measured, "reached" if is_reached else "**missed**") for figure, limit, measured, is_reached in goals(results)]
    lines += ["", "![A launch of `true`, beside the bare engines](benchmarks.svg)", ""]
    lines += race("A launch without a container", results.get("native"))
    for engine in ("docker", "podman"):
        lines += race(f"A launch on {engine}", results.get(engine))
    lines += race("Other launchers of containers", results.get("launchers"))
    lines += race("sandpen alone", results.get("alone"))
    lines += race("Git, on native", results.get("git"), "a plain launch")
    for engine, table in results.get("extras", {}).items():
        lines += race(f"What more costs, on {engine}", table, "a plain launch")
    lines += race("A large repository, on native", results.get("files"), "an empty repository")
    for name, make in (("neighbours", neighbours), ("memory", memory), ("proxy", proxy)):
        lines += make(results[name]) if results.get(name) else []
    lines += bench_map.page(results) if results.get("split") else []
    return "\n".join(lines).rstrip() + "\n"


def write(results):
    docs = os.path.join(HERE, "docs")
    path = os.path.join(docs, "benchmarks.md")
    text = open(path).read()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    with open(path, "w") as file:
        file.write(f"{before}{BEGIN}\n\n{page(results)}\n{END}{after or chr(10)}")
    with open(os.path.join(docs, "benchmarks.svg"), "w") as file:
        file.write(bench_chart.svg(results))
