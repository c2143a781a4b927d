"""Measure how the time to launch grows with the files, branches and mounts of a native sandbox."""
from bench_compare import print_table

FILES, BRANCHES, MOUNTS = (0, 1_000, 10_000, 100_000), (0, 100, 1_000, 10_000), (0, 4, 16, 64)


def growth(rig):
    """Return for each kind the ratio to the smallest count."""
    mount = lambda number: ("--mount", f"{rig.make_directory(f'mounts/{number}')}:/mnt/{number}")
    kinds = {
        "files in a Git repository": {count: rig.run("native", cwd=rig.repository(f"files-{count}", files=count)) for count in FILES},
        "branches of a Git repository": {count: rig.run("native", cwd=rig.repository(f"branches-{count}", refs=count)) for count in BRANCHES},
        "mounts": {count: rig.run("native", *(word for number in range(count) for word in mount(number))) for count in MOUNTS},
    }
    found = {}
    for title, commands in kinds.items():
        (_, first), *others = commands.items()
        table = rig.runner.compare(rig.fewer_rounds(2), first, {str(count): command for count, command in others}, with_repeat=False)
        print_table(f"growth with {title}", table)
        found[title] = {("0" if name == "reference" else name): line["ratio"] for name, line in table.items() if "ratio" in line}
    return found
