"""Print the summary, and write the generated part of docs/benchmarks.md and its chart."""
import os

import bench_breakdown
import bench_chart
import bench_cost
import bench_launch
import bench_workspace
from bench_rig import HERE

ENGINES = ("docker", "podman")
BEGIN, END = "<!-- scripts/bench --docs generates this part: begin -->", "<!-- scripts/bench --docs generates this part: end -->"


def goals(results):
    """Return each figure with its limit, the measured value, and whether it meets the limit."""
    found = []

    def goal(figure, limit, measured, style="{:.2f}"):
        outcome = "not measured" if measured is None else "met" if measured <= limit else "missed"
        found.append((figure, limit if isinstance(limit, str) else style.format(limit), "" if measured is None else style.format(measured), outcome))

    def within_noise(figure, table, name):
        """Set the limit to 1 plus the noise.

        The noise is the larger distance from 1 of the quartiles of the repeated reference.
        """
        ratio = (table or {}).get(name, {}).get("ratio")
        goal(figure, "1 + noise" if ratio is None else 1 + max(abs(1 - quartile) for quartile in table["repeat"]["quartiles"]), ratio)

    ratio = lambda section, name: results.get(section, {}).get(name, {}).get("ratio")
    for engine in ENGINES:
        within_noise(f"{engine}: `sandpen run` / bare `{engine} run` with the same flags", results.get(engine), "sandpen")
        within_noise(f"{engine}: the same without a network", results.get(f"{engine}-apart"), "sandpen --network off")
    goal("native / bwrap, with the host's network", 0.8, ratio("native", "sandpen"))
    goal("native / bwrap, with the host's network, in a Git repository", 0.9, ratio("native", "sandpen, in a Git repository"))
    own, least = ratio("native", "sandpen"), ratio("native", bench_launch.CLONE)
    goal("native / a program in C that makes the same namespaces", 2.0, own / least if own and least else None)
    goal("native with an image / native", 1.15, ratio("images", "sandpen"))
    of_docker = ratio("images", "docker run")
    goal("native with an image / bare `docker run` of it", 0.05, 1 / of_docker if of_docker else None)
    goal("native / bwrap, without a network", 1.0, ratio("native-apart", "sandpen --network off"))
    goal("native / bwrap, without a network, in a Git repository", 1.0, ratio("native-apart", "sandpen --network off, in a Git repository"))
    for engine in ENGINES:
        calls = results.get("calls", {}).get(engine, {})
        goal(f"{engine}: engine processes per launch", 1, calls.get("processes"), "{}")
        until = calls.get("until_called") or {}
        goal(f"{engine}: time until sandpen calls the engine", 5, until.get("ms"), "{:.1f} ms")
        goal(f"{engine}: time until sandpen calls the engine, in a Git repository", 5, until.get("in_repository_ms"), "{:.1f} ms")
    for engine in ("native", *ENGINES):
        own = results.get("memory", {}).get(f"sandpen, {engine}", {}).get("own_kb")
        goal(f"{engine}: PSS of sandpen's processes while the guest runs", 2.0, sum(own) / 1000 if own else None, "{:.2f} MB")
    for engine in ("native", *ENGINES):
        levels = results.get("neighbours", {}).get(engine, {})
        goal(f"{engine}: growth of the ratio to the bare engine with 100 other sandboxes", 1.1, levels.get("100", {}).get("growth"))
    goal("native: launch in a repository with 10 branches / in a plain directory", 1.1, ratio("git", bench_cost.TEN_REFS))
    goal("native: launch in a repository with 100,000 files and 10,000 branches / in a plain directory", 1.5, ratio("git", bench_cost.MANY_REFS))
    times = [results.get("commit", {}).get(name, {}).get("ms") for name in ("reference", "private")]
    goal("native: time to bring a commit of one file out", 200, times[1] - times[0] if None not in times else None, "{:.0f} ms")
    for engine in ("docker",):
        goal(f"{engine}: launch in a repository of 100,000 files / in an empty one", 1.05,
             results.get("files", {}).get(engine, {}).get("100,000 files", {}).get("ratio"))
    terminal = results.get("terminal", {}).get("sandpen, native", {})
    slowdown = 1 / terminal["ratio"] if terminal else None
    goal("native: time of the guest's terminal / that of a bare pseudo-terminal, for the same output", 2.0, slowdown)
    goal("native: added time until a key is echoed, median", 1.0, terminal.get("added_ms"), "{:.2f} ms")
    for tool, line in results.get("caches", {}).items():
        goal(f"native: time of a second {tool} install or build, with the network off / the first", 0.2, line["again_s"] / line["cold_s"])
    workspace = results.get("workspace", {})
    goal("native, copied workspace of 150,000 files: launch / in the directory itself", 1.05, workspace.get("launch", {}).get("ratio"))
    for name in (*bench_workspace.WORK, *bench_workspace.PROJECTS):
        line = workspace.get(name, {})
        goal(f"native, copied workspace: {name} / in the directory itself", 1.15, line.get("ratio"))
        goal(f"native, copied workspace: {name} / the same in a bare overlay, without a sandbox", 1.15, line.get("beyond_overlay"))
    goal("copied workspace: `diff` of 1,000 changed files", 0.5, workspace.get("diff of 1,000 files", {}).get("copy_s"), "{:.2f} s")
    disk = workspace.get("disk")
    goal("copied workspace: disk beyond what changed", 1.0, (disk["kb"] - disk["changed_kb"]) / 1000 if disk else None, "{:.2f} MB")
    transfers = results.get("push", {}).get("transfers", {})
    for kind, what in (("new", "a push that makes a branch"), ("forward", "a push that is a fast-forward"), ("fetch", "a fetch")):
        ratio_of_kind = transfers.get(kind, {}).get("ratio_throughput")
        goal(f"native: time of {what} through `--push` / by bare Git, over SSH", 1.11, 1 / ratio_of_kind if ratio_of_kind else None)
    goal("native: added time of a signature by the SSH agent", 1.0, results.get("push", {}).get("signatures", {}).get("signature_more_ms"), "{:.2f} ms")
    goal("binary, stripped", 9.0, results["binary_bytes"] / 1e6, "{:.1f} MB")
    return found


def summary(results):
    print(f"  {'figure':78} {'limit':26} {'measured':10}")
    for figure, limit, measured, outcome in goals(results):
        print(f"  {figure.replace('`', ''):78} {limit:26} {measured:10} {outcome.upper() if outcome == 'missed' else outcome}")


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def comparison(title, table, reference=None):
    if not table:
        return []
    lines = [f"### {title}", "", row("", "median", "ratio", "quartiles"), "|---|---|---|---|"]
    for name, line in table.items():
        label = {"reference": reference or line.get("command", "the reference"), "repeat": "the same command again (noise)"}.get(name, name)
        if "absent" in line:
            lines.append(row(label, table_text(line["absent"]), "", ""))
        else:
            spread = "" if name == "reference" else f"{line['quartiles'][0]:.2f}–{line['quartiles'][1]:.2f}"
            lines.append(row(label, f"{line['ms']:.1f} ms", f"{line['ratio']:.2f}", spread))
    return [*lines, ""]


def table_text(text):
    """Remove paths of this machine, and characters that break a table, from a program's message."""
    return " ".join(word for word in text.replace("|", " ").split() if "/" not in word)


def other_sandboxes(table):
    lines = ["### Launch while other sandboxes run", "",
             "Growth is relative to a launch without other sandboxes. The growth of the ratio is that of the median ratio of sandpen to the bare engine.",
             "", row("engine", "other sandboxes", "sandpen", "growth", "bare engine", "growth", "growth of the ratio", "`sandpen ps`"),
             "|---|---|---|---|---|---|---|---|"]
    for engine, levels in table.items():
        for level, line in levels.items():
            lines.append(row(engine, level, f"{line['sandpen_ms']:.1f} ms", f"{line['sandpen_growth']:.2f}", f"{line['bare_ms']:.1f} ms",
                             f"{line['bare_growth']:.2f}", f"{line['growth']:.2f}", f"{line['ps_ms']:.1f} ms"))
    return [*lines, ""]


def memory(table):
    lines = ["### Memory while the guest sleeps", "", "PSS of the launcher's process tree and of sandpen's helper, without the guest. The last column shows sandpen's processes.", "",
             row("", "total", "processes", "sandpen's processes"), "|---|---|---|---|"]
    for title, line in table.items():
        own = " + ".join(f"{kb / 1000:.2f} MB" for kb in line.get("own_kb", []))
        lines.append(row(title, f"{line['kb'] / 1000:.1f} MB" if line["kb"] else "not readable", line["processes"], own))
    return [*lines, ""]


def terminal(table):
    lines = ["### Terminal", "", row("", "MB/s", "ratio", "echo of a key", "added"), "|---|---|---|---|---|"]
    for name, line in table.items():
        lines.append(row(name, f"{line['mb_per_s']:.0f}", f"{line['ratio']:.2f}", f"{line['echo_ms']:.3f} ms", f"{line['added_ms']:.3f} ms"))
    return [*lines, ""]


def caches(table):
    lines = ["### Package caches", "", row("", "first, nothing cached", "again, network off", "ratio", "ratio without sandpen"), "|---|---|---|---|---|"]
    lines += [row(name, f"{line['cold_s']:.2f} s", f"{line['again_s']:.2f} s", f"{line['ratio']:.1f}", f"{line['outside_ratio']:.1f}")
              for name, line in table.items()]
    lines += ["", "What was installed or built is removed before the second run. Without sandpen the network is on, and the tool's",
              "cache is the same: where the ratio is as low there, the tool's own work takes the time."]
    return [*lines, ""]


def workspace(table):
    lines = ["### Copied workspace", "", "A bare overlay is mounted by hand over the same directory, without a sandbox.", "",
             row("", "no sandbox", "bare overlay", "ratio", "`--workspace live`", "`--workspace copy`", "ratio"), "|---|---|---|---|---|---|---|"]
    number = lambda line, key, form: form.format(line[key]) if key in line else "–"
    columns = (("directory_s", "{:.3f} s"), ("overlay_s", "{:.3f} s"), ("overlay_ratio", "{:.2f}"), ("live_s", "{:.3f} s"), ("copy_s", "{:.3f} s"), ("ratio", "{:.2f}"))
    lines += [row(name, *(number(line, key, form) for key, form in columns)) for name, line in table.items() if name != "disk"]
    return [*lines, ""]


def proxy(table):
    lines = ["### Proxy throughput", "", row("requests", "route", "MB/s", "ratio", "connections/s", "ratio"), "|---|---|---|---|---|---|"]
    for kind, routes in table.items():
        for name, line in routes.items():
            lines.append(row(kind, name, f"{line['mb_per_s']:.0f}", f"{line['ratio_throughput']:.2f}",
                             f"{line['connections_per_s']:.0f}", f"{line['ratio_connections']:.2f}"))
    return [*lines, ""]


def push(table):
    lines = ["### Pushes by rule and the SSH agent", "", row("over SSH, native", "MB/s", "bare Git", "ratio", "memory of the launcher"), "|---|---|---|---|---|"]
    for kind, line in table["transfers"].items():
        lines.append(row(kind, f"{line['mb_per_s']:.0f}", f"{line['bare_mb_per_s']:.0f}", f"{line['ratio_throughput']:.2f}", f"{line['launcher_mb']:.1f} MB"))
    line = table["signatures"]
    return [*lines, "", f"A signature by the agent takes {line['signature_more_ms']:.3f} ms more than without sandpen's socket "
            f"({line['signature_raw_ms']:.3f} ms); a launch with the agent takes {line['ratio_launch']:.2f} of one without.", ""]


def conditions(results):
    machine, versions = results["machine"], results["versions"]
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version and name != "sandpen")
    absent = [name for name, version in versions.items() if not version]
    return [f"Measured on {results['date']} on {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, "
            f"Linux {machine['kernel']}, as {machine['user']}, load {machine['load']} at the start, {results['rounds']} rounds; {installed}."
            + (f" Not installed: {', '.join(absent)}." if absent else ""), ""]


def page(results):
    """Return the generated part of docs/benchmarks.md."""
    lines = ["![Time to launch `true` in a sandbox, in milliseconds](benchmarks.svg)", "", *conditions(results)]
    lines += [row("figure", "limit", "measured", "result"), "|---|---|---|---|"]
    lines += [row(figure, limit, measured, "**missed**" if outcome == "missed" else outcome)
              for figure, limit, measured, outcome in goals(results)]
    lines += ["", "![Growth of the time to launch](growth.svg)", "", "<details><summary>All measurements</summary>", ""]
    lines += comparison("Native launch with the host's network", results.get("native"))
    lines += comparison("Native launch without a network", results.get("native-apart"))
    images = {name: line for name, line in results.get("images", {}).items() if not name.endswith(" run")}
    lines += comparison("Native launch with an image", images, "sandpen, without an image")
    engines = {name: line for name, line in results.get("images", {}).items() if name.endswith(" run")}
    lines += comparison("The same image on an engine, compared to a native launch with it", engines)
    for engine in ENGINES:
        lines += comparison(f"Launch on {engine}", results.get(engine))
        lines += comparison(f"Launch on {engine} without a network", results.get(f"{engine}-apart"))
    lines += comparison("Other container launchers", results.get("launchers"))
    lines += comparison("sandpen commands without a sandbox", results.get("alone"))
    lines += comparison("Git repositories on native", results.get("git"), "a plain launch")
    lines += comparison("A commit on native", results.get("commit"), "a commit with --git shared")
    for engine, table in results.get("extras", {}).items():
        lines += comparison(f"Additional features on {engine}", table, "a plain launch")
    for engine, table in results.get("files", {}).items():
        lines += comparison(f"Large repository on {engine}", table, "an empty repository")
    for name, make in (("neighbours", other_sandboxes), ("memory", memory), ("terminal", terminal), ("caches", caches), ("workspace", workspace), ("push", push),
                       ("proxy", proxy)):
        lines += make(results[name]) if results.get(name) else []
    lines += bench_breakdown.page(results) if results.get("split") else []
    return "\n".join([*lines, "</details>"]) + "\n"


def write(results):
    docs = os.path.join(HERE, "docs")
    path = os.path.join(docs, "benchmarks.md")
    text = open(path).read()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    with open(path, "w") as file:
        file.write(f"{before}{BEGIN}\n\n{page(results)}\n{END}{after or chr(10)}")
    for name, draw in (("benchmarks.svg", bench_chart.launches), ("growth.svg", bench_chart.growth)):
        with open(os.path.join(docs, name), "w", encoding="utf-8") as file:
            file.write(draw(results))
