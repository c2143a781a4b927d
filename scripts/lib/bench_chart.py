"""Draw the chart of launch times, and the chart of how they grow."""
import math

from drawing import label, page, text_width

WIDTH, LINE, RIGHT, TITLE = 860, 24, 110, 20
# Each launch that the chart shows: its section, its row, and its label.
LAUNCHES = [
    ("native", "sandpen", "sandpen, native"),
    ("native", "sandpen, in a Git repository", "sandpen, native, in a Git repository"),
    ("native", "reference", "bubblewrap"),
    ("images", "sandpen", "sandpen, native, with an image"),
    ("images", "charliecloud", "charliecloud"),
    ("native-apart", "firejail", "firejail"),
    ("native-apart", "codex", "codex sandbox"),
    ("native-apart", "srt", "srt"),
    ("docker", "sandpen", "sandpen, docker"),
    ("docker", "reference", "docker run"),
    ("podman", "sandpen", "sandpen, podman"),
    ("podman", "reference", "podman run"),
    ("launchers", "distrobox enter", "distrobox enter"),
    ("launchers", "devcontainer exec", "devcontainer exec"),
    ("launchers", "gemini-cli", "gemini --sandbox"),
]


def bars(results):
    """Yield the label and the median of each measured launch in milliseconds, with its quartiles."""
    for section, name, title in LAUNCHES:
        line = results.get(section, {}).get(name, {})
        if "ms" in line:
            spread = [quartile / line["ratio"] * line["ms"] for quartile in line.get("quartiles", (1, 1))]
            yield title, line["ms"], spread if name != "reference" else [line["ms"]] * 2


def launches(results):
    drawn = sorted(bars(results), key=lambda bar: bar[1])
    if not drawn:
        return page(WIDTH, 40, "No launch was measured", [label(10, 24, "No launch was measured.")])
    left = max(text_width(name) for name, *_ in drawn) + 20
    low, high = 0, math.log10(max(spread[1] for *_, spread in drawn) * 1.2)
    at = lambda ms: left + (math.log10(max(ms, 1)) - low) / (high - low) * (WIDTH - left - RIGHT)
    parts, top = [label(10, TITLE, "Time to launch `true`, in milliseconds (shorter is better; each grid line is ten times the one before)", "text title")], TITLE + 14
    bottom = top + LINE * len(drawn)
    for power in range(math.floor(high) + 1):
        x = at(10 ** power)
        parts += [f'<line class="line" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>', label(x, bottom + 16, f"{10 ** power} ms", "faint small", "middle")]
    for number, (name, ms, spread) in enumerate(drawn):
        y = top + LINE * number
        kind = "sandpen" if name.startswith("sandpen") else "other"
        parts += [
            label(left - 8, y + 16, name, "text", "end"),
            f'<rect class="{kind}" x="{left:.1f}" y="{y + 4}" width="{at(ms) - left:.1f}" height="{LINE - 8}" rx="2"/>',
            f'<line class="mark" x1="{at(spread[0]):.1f}" y1="{y + 12}" x2="{at(spread[1]):.1f}" y2="{y + 12}"/>',
            label(at(max(ms, spread[1])) + 8, y + 16, f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms"),
        ]
    return page(WIDTH, bottom + 30, "Time to launch a command in a sandbox", parts)


def curves(results):
    """Yield the title of each growth and its lines: a name and pairs of a count and a ratio."""
    others = results.get("neighbours", {})
    if others:
        yield "other sandboxes running", [(engine, [(int(level), line["sandpen_growth"]) for level, line in levels.items()]) for engine, levels in others.items()]
    for title, line in results.get("growth", {}).items():
        yield f"{title}, native", [("native", [(int(count), ratio) for count, ratio in line.items()])]


def growth(results):
    drawn, size, height = list(curves(results)), 270, 150
    parts = [label(10, TITLE, "Growth of the time to launch (1 = none)", "text title")]
    for number, (title, lines) in enumerate(drawn):
        x0, y0 = 40 + (number % 3) * (size + 10), TITLE + 40 + (number // 3) * (height + 70)
        top = max([2.0] + [ratio for _, points in lines for _, ratio in points])
        widest = max([1] + [math.log10(1 + count) for _, points in lines for count, _ in points])
        at = lambda count, ratio: (x0 + math.log10(1 + count) / widest * (size - 70), y0 + height - ratio / top * height)
        parts.append(label(x0, y0 - 8, title, "faint"))
        for tick in (1, top):
            y = at(0, tick)[1]
            parts += [f'<line class="line" x1="{x0}" y1="{y:.1f}" x2="{x0 + size - 70}" y2="{y:.1f}"/>', label(x0 - 6, y + 4, f"{tick:.1f}", "faint small", "end")]
        for count in sorted({count for _, points in lines for count, _ in points}):
            parts.append(label(at(count, 0)[0], y0 + height + 16, f"{count:,}" if count < 1000 else f"{count // 1000}k", "faint small", "middle"))
        for name, points in lines:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
            x, y = at(*points[-1])
            parts += [f'<polyline class="curve" points="{path}" fill="none" stroke-width="2"/>', label(x + 6, y + 4, name, "text small")]
    rows = max(1, (len(drawn) + 2) // 3)
    return page(WIDTH, TITLE + 40 + rows * (150 + 70) - 30, "Growth of the time to launch", parts)
