"""Write SVG files that are readable on dark and on light pages: `python3 scripts/lib/drawing.py` draws docs/walls.svg."""
import os
from xml.sax.saxutils import escape

# A viewer that knows no media queries shows the light colours, on a background of their own.
STYLE = """
svg { font: 13px system-ui, sans-serif }
.page { fill: #ffffff } .text { fill: #1c2430 } .faint { fill: #5d6878 } .line { stroke: #c9d0d9 }
.axis { stroke: #5d6878 } .box { fill: #f4f6f9; stroke: #c9d0d9 } .wall { fill: #2f3b4c } .gate { fill: #2a6fb0 }
.on-gate { fill: #ffffff; font-weight: 600 } .never { fill: #b3372c } .sandpen { fill: #2a6fb0 } .other { fill: #9aa3af }
.mark { stroke: #1c2430 } .curve { stroke: #2a6fb0 } .title { font-weight: 600 } .small { font-size: 11px }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9aa7b4 } .line { stroke: #30363d }
.axis { stroke: #9aa7b4 } .box { fill: #161b22; stroke: #30363d } .wall { fill: #56657a } .gate { fill: #3b82c4 }
.never { fill: #ff8a7a } .sandpen { fill: #58a6e8 } .other { fill: #6e7681 } .mark { stroke: #e6edf3 } .curve { stroke: #58a6e8 } }
"""

GATES = [
    ("repository", "a Git directory of its own", "commits and refs, checked by your Git", "hooks, settings, links"),
    ("terminal", "a pseudo-terminal of its own", "your terminal; detach and attach", "what you type elsewhere"),
    ("SSH agent", "/ssh-agent: list and sign", "your agent, by verified destination", "keys; add, remove, lock"),
    ("pushes", "git push, without a key", "your ssh or HTTPS, by branch rule", "other branches, other hosts"),
    ("secrets", "placeholders of the same shape", "the value, for its own hosts only", "the value"),
    ("network", "one proxy, or none at all", "the hosts that you allow", "all other hosts"),
    ("workspace", "the directory, or a copy of it", "what you apply after a look", "the rest of your home"),
]
WIDTH, ROW, TOP, WALL, GATE = 820, 54, 64, 385, 120


def text_width(text, size=13):
    """Estimate the width of a text, generously, so that no label is cut off."""
    return len(text) * size * 0.56


def page(width, height, title, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
            f"<title>{escape(title)}</title><style>{STYLE}</style>"
            f'<rect class="page" width="100%" height="100%"/>\n' + "\n".join(parts) + "\n</svg>\n")


def label(x, y, text, kind="text", anchor="start"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def walls():
    bottom = TOP + ROW * len(GATES)
    parts = [
        f'<rect class="box" x="16" y="16" width="{WALL - 26}" height="{bottom - 4}" rx="8"/>',
        f'<rect class="wall" x="{WALL + GATE / 2 - 5}" y="16" width="10" height="{bottom - 4}"/>',
        label(32, 42, "Inside: claude, codex, any command", "text title"),
        label(WALL + GATE + 24, 42, "Your machine", "text title"),
    ]
    for number, (name, inside, outside, never) in enumerate(GATES):
        y = TOP + ROW * number
        middle = y + ROW / 2 - 4
        parts += [
            label(32, middle + 4, inside),
            f'<line class="axis" x1="{32 + text_width(inside) + 8:.0f}" y1="{middle}" x2="{WALL}" y2="{middle}"/>',
            f'<rect class="gate" x="{WALL}" y="{y + 4}" width="{GATE}" height="{ROW - 16}" rx="6"/>',
            label(WALL + GATE / 2, middle + 4, name, "on-gate", "middle"),
            f'<line class="axis" x1="{WALL + GATE}" y1="{middle}" x2="{WALL + GATE + 16}" y2="{middle}"/>',
            label(WALL + GATE + 24, middle - 4, outside),
            label(WALL + GATE + 24, middle + 13, f"never: {never}", "never small"),
        ]
    return page(WIDTH, bottom + 28, "Walls and gates: what crosses the wall of a sandbox, and what never does", parts)


if __name__ == "__main__":
    docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
    with open(os.path.join(docs, "walls.svg"), "w", encoding="utf-8") as file:
        file.write(walls())
