"""Write the tables of the steps of a launch, and of the time that variants of a launch take."""


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def ms(value):
    return "" if value is None else f"{value:.1f} ms"


def steps(split, calls):
    """Return the steps of a launch as pairs of name and milliseconds.

    The API's figures are the work of the engine; the last step is what the client adds to them.
    """
    api = {step: split.get(f"api: {step}, network default") for step in ("create", "start", "wait", "remove")}
    host_network = split.get("api: start, network host")
    own = calls["until_called"]["ms"] if calls and calls["until_called"] else None
    found = [("sandpen, until it calls the engine", own), ("start of the client", split["client: start of the client"])]
    if None not in api.values():
        guest = min(split.get("api: guest, network default", 0), api["wait"])
        found += [("create", api["create"]), ("start, with the host's network: namespaces, mounts, guest process", host_network),
                  ("network namespace", api["start"] - host_network), ("guest, by the times that the engine records", guest),
                  ("exit, until the engine reports it", api["wait"] - guest), ("removal", api["remove"])]
        known = sum(value for _, value in found[1:])
        found.append(("other work of the client: requests, attaching, events", split["client: run, network default"] - known))
    return found


def variants(split):
    """Return the duration of each variant of a launch, and how much it saves."""
    run = split["client: run, network default"]
    api = lambda network: [split.get(f"api: {step}, network {network}") for step in ("create", "start", "wait", "remove")]
    total = {network: sum(api(network)) if None not in api(network) else None for network in ("default", "none", "host")}
    removal = split.get("api: remove, network default")
    options = [("client, `run --rm`", run), ("client, `--network none`", split["client: run, network none"]),
               ("client, no new network namespace (`--network host`)", split["client: run, network host"]),
               ("API", total["default"]), ("API, `--network none`", total["none"]),
               ("API, no new network namespace", total["host"]),
               ("API, without waiting for the removal", total["default"] - removal if removal is not None else None),
               ("API, no new network namespace, without waiting for the removal", total["host"] - split["api: remove, network host"] if total["host"] else None),
               ("client, `exec` in a running container", split["client: exec"]),
               ("API, `exec` in a running container", split.get("api: exec"))]
    return [(name, value, run - value) for name, value in options if value is not None]


def page(results):
    split, calls = results["split"], results.get("calls", {})
    engines = [engine for engine in ("docker", "podman") if engine in split]
    lines = ["## Launch time by step", ""]
    if engines:
        columns = [dict(steps(split[engine], calls.get(engine))) for engine in engines]
        lines += ["The steps of the engine are measured with its API over one connection and with the default network. The start of the client is `ENGINE --version`.",
                  "", row("step", *engines), "|---" * (len(engines) + 1) + "|"]
        lines += [row(name, *(ms(column.get(name)) for column in columns)) for name in columns[0]]
        lines += [row("total of `run --rm` with the client", *(ms(split[engine]["client: run, network default"]) for engine in engines)),
                  row("total of `create`, `start`, `wait` and `rm` with the client",
                      *(ms(sum(split[engine][f"client: {step}"] for step in ("create", "start", "wait", "remove"))) for engine in engines)), ""]
        lines += ["Variants of a launch, compared to `run --rm` with the client:", "", row("variant", *(f"{engine} | saves" for engine in engines)),
                  "|---" * (2 * len(engines) + 1) + "|"]
        tables = [{name: (value, saves) for name, value, saves in variants(split[engine])} for engine in engines]
        for name in tables[0]:
            cells = [f"{ms(table[name][0])} | {ms(table[name][1])}" if name in table else " | " for table in tables]
            lines.append(row(name, *cells))
        lines.append("")
    if native := split.get("native"):
        lines += ["Steps on native in a Git repository, measured with strace and scaled to the time of an untraced launch:", "", row("step", "native"), "|---|---|"]
        names = {"total": "total", "with_git": "total, with Git started", "off": "total, with a network namespace (`--network off`)",
                 "exec": "`sandpen exec` in a running sandbox"}
        order = [name for name in native if name not in names] + list(names)
        lines += [row(names.get(name, name), ms(native[name])) for name in order if name in native] + [""]
    return lines
