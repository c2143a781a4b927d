"""Draw the chart of the ratios to the bare engines, with quartiles, on a logarithmic scale."""
import math
from xml.sax.saxutils import escape

WIDTH, LEFT, LINE, RIGHT = 860, 270, 22, 90
COLOURS = {"sandpen": "#2a6fb0", "other": "#9a9a9a"}


def panels(results):
    """Yield the title and the bars (name, ratio, quartiles) of each comparison."""
    for key, title in (("native", "native launch with the host's network, ratio to bubblewrap"),
                       ("native-apart", "native launch without a network, ratio to bubblewrap"),
                       ("docker", "launch on docker, ratio to docker run with the same flags"),
                       ("launchers", "other container launchers, ratio to docker run with the same flags"),
                       ("podman", "launch on podman, ratio to podman run with the same flags")):
        table = results.get(key, {})
        bars = [(name, line["ratio"], line["quartiles"]) for name, line in table.items() if name != "reference" and "ratio" in line]
        if bars:
            yield title, [("the same command again (noise)" if name == "repeat" else name, *rest) for name, *rest in bars]


def svg(results):
    drawn = list(panels(results))
    top = max([4.0] + [high for _, bars in drawn for _, _, (_, high) in bars])
    low, high = math.log10(0.3), math.log10(top * 1.1)
    at = lambda ratio: LEFT + (math.log10(max(ratio, 0.3)) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
    parts, y = [], 34
    for title, bars in drawn:
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{escape(title)}</text>')
        y += 10
        bottom = y + LINE * len(bars)
        for tick in (0.5, 1, 2, 5, 10, 20, 50, 100):
            if tick <= top * 1.1:
                style = 'stroke="#555"' if tick == 1 else 'stroke="#ddd"'
                parts.append(f'<line x1="{at(tick):.1f}" y1="{y}" x2="{at(tick):.1f}" y2="{bottom}" {style}/>')
                parts.append(f'<text x="{at(tick):.1f}" y="{bottom + 12}" text-anchor="middle" font-size="10" fill="#555">{tick}×</text>')
        for name, ratio, (lower, upper) in bars:
            colour = COLOURS["sandpen" if name.startswith("sandpen") else "other"]
            first, last = sorted((at(1), at(ratio)))
            middle = y + LINE / 2
            parts.append(f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect x="{first:.1f}" y="{y + 5}" width="{max(last - first, 1):.1f}" height="{LINE - 10}" fill="{colour}"/>')
            parts.append(f'<line x1="{at(lower):.1f}" y1="{middle}" x2="{at(upper):.1f}" y2="{middle}" stroke="#000" stroke-width="1.5"/>')
            parts.append(f'<text x="{max(at(upper), last, at(1)) + 6:.1f}" y="{middle + 4}">{ratio:.2f}</text>')
            y += LINE
        y += 44
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y - 16}" viewBox="0 0 {WIDTH} {y - 16}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")
