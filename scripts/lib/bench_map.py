"""The map: a launch on each engine split into its steps, and what each would save if it were avoided."""


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def ms(value):
    return "" if value is None else f"{value:.1f} ms"


def steps(split, calls):
    """One engine's launch as (step, milliseconds), and its whole. The API's figures are the engine's own work; what the client
    takes beyond them is the rest."""
    api = {step: split.get(f"api: {step}, network default") for step in ("create", "start", "wait", "remove")}
    without = split.get("api: start, network host")
    own = calls["until_called"]["ms"] if calls and calls["until_called"] else None
    found = [("sandpen's own work until the engine is called", own), ("the engine client's start", split["client: its start"])]
    if None not in api.values():
        guest = min(split.get("api: guest, network default", 0), api["wait"])
        found += [("create", api["create"]), ("start: namespaces, mounts, the guest's start; no network of its own", without),
                  ("network namespace", api["start"] - without), ("the guest, as the engine notes its start and its exit", guest),
                  ("exit, until the engine says so", api["wait"] - guest), ("removal", api["remove"])]
        known = sum(value for _, value in found[1:])
        found.append(("the rest: questions, attaching, events", split["client: run, network default"] - known))
    return found


def avoided(split):
    """What a launch would take otherwise, and the saving."""
    run = split["client: run, network default"]
    api = lambda network: [split.get(f"api: {step}, network {network}") for step in ("create", "start", "wait", "remove")]
    whole = {network: sum(api(network)) if None not in api(network) else None for network in ("default", "none", "host")}
    removal = split.get("api: remove, network default")
    options = [("the client, as it is (`run --rm`)", run), ("`--network none`", split["client: run, network none"]),
               ("no new network namespace (`--network host`)", split["client: run, network host"]),
               ("the API instead of the client", whole["default"]), ("the API, `--network none`", whole["none"]),
               ("the API, no new network namespace", whole["host"]),
               ("the API, not waiting for the removal", whole["default"] - removal if removal is not None else None),
               ("the API, neither network namespace nor removal", whole["host"] - split["api: remove, network host"] if whole["host"] else None),
               ("`exec` into a running container, by the client", split["client: exec"]),
               ("`exec` into a running container, by the API", split.get("api: exec"))]
    return [(name, value, run - value) for name, value in options if value is not None]


def page(results):
    split, calls = results["split"], results.get("calls", {})
    engines = [engine for engine in ("docker", "podman") if engine in split]
    lines = ["## Where a launch goes", ""]
    if engines:
        columns = [dict(steps(split[engine], calls.get(engine))) for engine in engines]
        lines += ["The engine's own steps are taken by its API over one connection, `--network default`; the client's start is `ENGINE --version`.",
                  "", row("step", *engines), "|---" * (len(engines) + 1) + "|"]
        lines += [row(name, *(ms(column.get(name)) for column in columns)) for name in columns[0]]
        lines += [row("a whole `run --rm` by the client", *(ms(split[engine]["client: run, network default"]) for engine in engines)),
                  row("by the client, one by one: create, start, wait, rm",
                      *(ms(sum(split[engine][f"client: {step}"] for step in ("create", "start", "wait", "remove"))) for engine in engines)), ""]
        lines += ["What it would take if something were avoided:", "", row("instead", *(f"{engine} | saves" for engine in engines)),
                  "|---" * (2 * len(engines) + 1) + "|"]
        tables = [{name: (value, saves) for name, value, saves in avoided(split[engine])} for engine in engines]
        for name in tables[0]:
            cells = [f"{ms(table[name][0])} | {ms(table[name][1])}" if name in table else " | " for table in tables]
            lines.append(row(name, *cells))
        lines.append("")
    if native := split.get("native"):
        lines += ["On native, in a Git repository; the marks are strace's, scaled to an untraced launch:", "", row("step", "native"), "|---|---|"]
        names = {"whole": "the whole launch", "asked": "with Git asked anew", "off": "with a network namespace (`--network off`)", "exec": "`sandpen exec` into a running sandbox"}
        order = [name for name in native if name not in names] + list(names)
        lines += [row(names.get(name, name), ms(native[name])) for name in order if name in native] + [""]
    return lines
