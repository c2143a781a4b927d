"""Turns the figures into a summary against the goals, into the generated part of docs/benchmarks.md, and into its chart."""
import os

import bench_chart
import bench_map
from bench_rig import HERE

ENGINES = ("docker", "podman")
BEGIN, END = "<!-- what follows is written by scripts/bench --docs -->", "<!-- what precedes is written by scripts/bench --docs -->"


def goals(results):
    """What is to be reached: the figure, its limit, what was measured, and whether it held. What was not measured is there, too."""
    found = []

    def goal(figure, limit, measured, shown="{:.2f}"):
        held = "not measured" if measured is None else "held" if measured <= limit else "missed"
        found.append((figure, limit if isinstance(limit, str) else shown.format(limit), "" if measured is None else shown.format(measured), held))

    def against_twin(figure, table, name):
        """The limit is one and the noise: how far the farther quartile of the twin's ratios is from one."""
        ratio = (table or {}).get(name, {}).get("ratio")
        goal(figure, "1 + the twin's noise" if ratio is None else 1 + max(abs(1 - quartile) for quartile in table["twin"]["quartiles"]), ratio)

    ratio = lambda section, name: results.get(section, {}).get(name, {}).get("ratio")
    for engine in ENGINES:
        against_twin(f"{engine}: `sandpen run` / bare `{engine} run` with the same flags", results.get(engine), "sandpen")
        against_twin(f"{engine}: … without a network", results.get(f"{engine}-apart"), "sandpen --network off")
    goal("native / bwrap, the host's network in both", 1.0, ratio("native", "sandpen"))
    goal("… in a Git repository", 1.0, ratio("native", "sandpen, in a Git repository"))
    goal("native / bwrap, no network in both", 1.0, ratio("native-apart", "sandpen --network off"))
    goal("… in a Git repository", 1.0, ratio("native-apart", "sandpen --network off, in a Git repository"))
    for engine in ENGINES:
        calls = results.get("calls", {}).get(engine, {})
        goal(f"{engine}: engine processes per launch", 1, calls.get("processes"), "{}")
        until = calls.get("until_called") or {}
        goal(f"{engine}: sandpen's own time until the engine is called", 5, until.get("ms"), "{:.1f} ms")
        goal("… in a Git repository", 5, until.get("in_repository_ms"), "{:.1f} ms")
    for engine in ("native", *ENGINES):
        own = results.get("memory", {}).get(f"sandpen, {engine}", {}).get("own_kb")
        goal(f"{engine}: PSS of sandpen's processes while the guest runs", 2.0, sum(own) / 1000 if own else None, "{:.2f} MB")
    for engine in ("native", *ENGINES):
        levels = results.get("neighbours", {}).get(engine, {})
        goal(f"{engine}: growth of a launch with 100 others running / the bare engine's own", 1.1, levels.get("100", {}).get("growth"))
    for engine in ("native", "docker"):
        goal(f"{engine}: a launch in a repository of 100,000 files / in an empty one", 1.05,
             results.get("files", {}).get(engine, {}).get("100,000 files", {}).get("ratio"))
    goal("binary, stripped", 6.0, results["binary_bytes"] / 1e6, "{:.1f} MB")
    return found


def summary(results):
    print(f"  {'figure':78} {'at most':26} {'measured':10}")
    for figure, limit, measured, held in goals(results):
        print(f"  {figure.replace('`', ''):78} {limit:26} {measured:10} {held.upper() if held == 'missed' else held}")


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
             "Growth is against a launch with nobody else there; the last column but one is sandpen's growth over the bare engine's at the same time.",
             "", row("engine", "others", "sandpen", "growth", "bare", "growth", "sandpen's / bare's", "`sandpen ps`"),
             "|---|---|---|---|---|---|---|---|"]
    for engine, levels in table.items():
        for level, line in levels.items():
            lines.append(row(engine, level, f"{line['sandpen_ms']:.1f} ms", f"{line['sandpen_growth']:.2f}", f"{line['bare_ms']:.1f} ms",
                             f"{line['bare_growth']:.2f}", f"{line['growth']:.2f}", f"{line['ps_ms']:.1f} ms"))
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
    lines += [row(figure, limit, measured, "**missed**" if held == "missed" else held) for figure, limit, measured, held in goals(results)]
    lines += ["", "![A launch of `true`, beside the bare engines](benchmarks.svg)", ""]
    lines += race("A launch without a container, with the host's network", results.get("native"))
    lines += race("A launch without a container, without a network", results.get("native-apart"))
    for engine in ENGINES:
        lines += race(f"A launch on {engine}", results.get(engine))
        lines += race(f"A launch on {engine}, without a network", results.get(f"{engine}-apart"))
    lines += race("Other launchers of containers", results.get("launchers"))
    lines += race("sandpen alone", results.get("alone"))
    lines += race("Git, on native", results.get("git"), "a plain launch")
    for engine, table in results.get("extras", {}).items():
        lines += race(f"What more costs, on {engine}", table, "a plain launch")
    for engine, table in results.get("files", {}).items():
        lines += race(f"A large repository, on {engine}", table, "an empty repository")
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
