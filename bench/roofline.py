#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `vitrine bench --json` printed as a roofline: how far each part of a step is from what its machine can do.

usage: roofline.py [FILE.json ...] [-o roofline.svg]      (standard input and standard output by default)

A panel a file, all on the same axes: operations per byte against Gop/s, both logarithmic. The roofs are the stream (a
diagonal) and the peaks of the instructions (flat). A file needs a depth and a prompt that were measured.
"""
import argparse
import collections
import json
import math
import sys
from xml.sax.saxutils import escape

# In pixels.
WIDTH, LEFT, RIGHT = 960, 66, 730  # the picture, the edges of a plot
HEADING, PLOT, BELOW, LINE = 82, 420, 72, 17  # heights: title and legend, a plot, its axis; a row of text
TABLE, SHARE = 172, 122  # width of a table of labels, of which the name and the share of the time
INSIDE, BESIDE = 84, 40  # from points to their table under the roof, from the plot to one that stands beside it
NAMES = {"o_proj": "o", "gate_up": "gate, up", "down_proj": "down", "rope_and_kv_store": "rope and storing kv"}

STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #24292f }
  .card { fill: #ffffff }
  .title { font-size: 17px; font-weight: 600 }
  .quiet { fill: #656d76 }
  .halo { stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; paint-order: stroke }
  .end { text-anchor: end }
  .middle { text-anchor: middle }
  .grid { stroke: #e7eaee; fill: none }
  .roof { stroke: #57606a; stroke-width: 1.75; fill: none }
  .decode { fill: #0b62c4; stroke: #ffffff }
  .prefill { fill: #c4500b; stroke: #ffffff }
  .leader.decode { fill: none; stroke: #0b62c4; stroke-opacity: 0.45 }
  .leader.prefill { fill: none; stroke: #c4500b; stroke-opacity: 0.45 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .card { fill: #0d1117 }
    .quiet { fill: #9198a1 }
    .halo { stroke: #0d1117 }
    .grid { stroke: #21272e }
    .roof { stroke: #9aa4ae }
    .decode { fill: #6cb0ff; stroke: #0d1117 }
    .prefill { fill: #ff9a57; stroke: #0d1117 }
    .leader.decode { stroke: #6cb0ff }
    .leader.prefill { stroke: #ff9a57 }
  }
"""


class Failure(Exception):
    """A line for people."""


# ---- Reading -----------------------------------------------------------------------------------------------

# kind: "decode" or "prefill"; intensity: operations per byte; share: of the time of its step or prompt; roof: Gop/s
Point = collections.namedtuple("Point", "kind what part intensity gops share roof")
# what: "decode at 2,048"; points; rest: (part, share of the time) of those without products
Series = collections.namedtuple("Series", "kind what seconds points rest")
Bench = collections.namedtuple("Bench", "title stream float_peak int8_peak step_tokens series")


def number(where, values, key):
    """One that can be drawn."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-12 < value < 1e18:
        raise Failure(f"{where}: expected a number above 0 as {key}, found {json.dumps(value)[:40]}")
    return value


def table(where, values, key):
    value = values.get(key)
    if not isinstance(value, dict):
        raise Failure(f"{where}: expected an object as {key}, found {json.dumps(value)[:40]}")
    return value


def read_series(where, profile, roof_of):
    kind, size = profile.get("what"), profile.get("size")
    if kind not in ("decode", "prefill") or not isinstance(size, int):
        raise Failure(f"{where}: expected decode or prefill and a size, found {json.dumps([kind, size])[:40]}")
    what = f"decode at {size:,}" if kind == "decode" else f"prefill {size:,}"
    seconds = number(f"{where}, {what}", profile, "seconds")
    points, rest = [], []
    for part, values in table(f"{where}, {what}", profile, "parts").items():
        here = f"{where}, {what}, {part}"
        if not isinstance(values, dict):
            raise Failure(f"{here}: expected an object, found {json.dumps(values)[:40]}")
        if "operations" not in values and "bytes" not in values:  # no products: not on a roofline
            time = values.get("seconds")
            rest.append((part, number(here, values, "seconds") / seconds if time != 0 else 0))
            continue
        time, work, traffic = (number(here, values, key) for key in ("seconds", "operations", "bytes"))
        intensity = work / traffic
        points.append(Point(kind, what, part, intensity, work / time * 1e-9, time / seconds, roof_of(part, intensity)))
    return Series(kind, what, seconds, points, rest)


def read_bench(where, data):
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{where}: not JSON: {error}") from error
    if not isinstance(answer, dict) or not isinstance(answer.get("profiles"), list) or not answer["profiles"]:
        raise Failure(f"{where}: no profiles: not what `vitrine bench --json` prints of a prompt or a depth")
    peaks = table(where, answer, "peaks")
    if answer.get("stream_gb_per_s") is None:
        raise Failure(f"{where}: no stream_gb_per_s: it is measured where something decodes (--depth)")
    stream = number(where, answer, "stream_gb_per_s")
    float_peak, int8_peak = number(where, peaks, "float_gflops"), number(where, peaks, "int8_gops")
    weights = str(answer.get("weights"))

    def roof_of(part, intensity):
        on_floats = part == "attention" or weights == "bf16"
        return min(stream * intensity, float_peak if on_floats else int8_peak)

    threads = number(where, answer, "threads")
    model = str(answer.get("model")).rstrip("/").rsplit("/", 1)[-1]
    title = (f"{model}: {weights} weights, {answer.get('kv')} cache, {answer.get('isa')}, "
             f"{threads} thread{'' if threads == 1 else 's'}")
    series = [read_series(where, profile if isinstance(profile, dict) else {}, roof_of)
              for profile in answer["profiles"]]
    if not any(one.points for one in series):
        raise Failure(f"{where}: no part has operations and bytes")
    return Bench(title, stream, float_peak, int8_peak, number(where, answer, "step_tokens"), series)


# ---- Scales ------------------------------------------------------------------------------------------------


class Scale:
    """A logarithmic axis from pixel `begin` to `end`."""

    def __init__(self, ticks, begin, end):
        self.ticks, self.begin, self.end = ticks, begin, end
        self.low, self.high = ticks[0], ticks[-1]

    def __call__(self, value):
        return self.begin + (self.end - self.begin) * math.log(value / self.low) / math.log(self.high / self.low)

    def at(self, pixel):
        return self.low * (self.high / self.low) ** ((pixel - self.begin) / (self.end - self.begin))


def doublings(low, high):
    """Powers of two, one below the lowest value and one above the highest."""
    return [2.0**e for e in range(math.ceil(math.log2(low)) - 1, math.floor(math.log2(high)) + 2)]


def rounded(low, high):
    """1, 2, 5, 10, …, from the last below `low` to the first above `high`."""
    all_of_them = [m * 10.0**e for e in range(-3, 10) for m in (1, 2, 5)]
    first = max(i for i, tick in enumerate(all_of_them) if tick <= max(low, 1e-3))
    last = min(i for i, tick in enumerate(all_of_them) if tick >= min(high, 1e9))
    return all_of_them[first : last + 1]


def spread(wanted, gap, low, high):
    """Places in the same order, `gap` apart at least and between the limits, as near to the wanted ones as can be."""
    blocks = []  # of places that touch: the sum of where their first would be, and how many
    for i, place in enumerate(wanted):
        blocks.append((place - i * gap, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            (sum_a, count_a), (sum_b, count_b) = blocks[-2:]
            blocks[-2:] = [(sum_a + sum_b, count_a + count_b)]
    firsts = [total / count for total, count in blocks for _ in range(count)]
    last = high - (len(wanted) - 1) * gap
    return [min(max(first, low), last) + i * gap for i, first in enumerate(firsts)]


# ---- Drawing -----------------------------------------------------------------------------------------------


def text(x, y, content, classes="", more=""):
    named = f' class="{classes}"' if classes else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}{more}>{escape(content)}</text>'


def path(classes, *points):
    steps = " ".join(f"{'ML'[i > 0]}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return f'<path class="{classes}" d="{steps}"/>'


def marker(kind, x, y, title=""):
    inside = f"<title>{escape(title)}</title>" if title else ""
    if kind == "decode":
        return f'<circle class="decode" cx="{x:.1f}" cy="{y:.1f}" r="5">{inside}</circle>'
    return f'<path class="prefill" d="M{x:.1f} {y - 6:.1f} l6 6 l-6 6 l-6 -6 z">{inside}</path>'


def figure(value):
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def percent(share):
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def tick_name(value):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


class Panel:
    """One file's picture, `top` pixels down."""

    def __init__(self, bench, top, x_ticks, y_ticks):
        self.bench, self.top = bench, top
        self.begin = top + HEADING
        self.end = self.begin + PLOT
        self.x = Scale(x_ticks, LEFT, RIGHT)
        self.y = Scale(y_ticks, self.end, self.begin)

    def draw(self):
        return [*self.heading(), *self.axes(), *self.roofs(), *self.points()]

    def heading(self):
        out = [text(LEFT, self.top + 28, "Roofline of " + self.bench.title, "title")]
        for i, one in enumerate(self.bench.series):
            x, y = LEFT + 6 + 270 * i, self.top + 53
            step = " a step" if one.kind == "decode" else ""
            out += [marker(one.kind, x, y - 4), text(x + 14, y, f"{one.what}: {figure(1000 * one.seconds)} ms{step}")]
        return out

    def axes(self):
        out = []
        for tick in self.x.ticks:
            out.append(path("grid", (self.x(tick), self.begin), (self.x(tick), self.end)))
            out.append(text(self.x(tick), self.end + 18, tick_name(tick), "quiet middle"))
        for tick in self.y.ticks:
            out.append(path("grid", (LEFT, self.y(tick)), (RIGHT, self.y(tick))))
            out.append(text(LEFT - 8, self.y(tick) + 4, tick_name(tick), "quiet end"))
        out.append(text((LEFT + RIGHT) / 2, self.end + 40, "operations per byte read", "quiet middle"))
        turned = f' transform="rotate(-90 16 {(self.begin + self.end) / 2:.1f})"'
        out.append(text(16, (self.begin + self.end) / 2, "Gop/s", "quiet middle", turned))
        return out

    def roofs(self):
        bench, out = self.bench, []
        high = max(bench.float_peak, bench.int8_peak)
        left = (LEFT, self.y(bench.stream * self.x.low))
        ridge = (self.x(high / bench.stream), self.y(high))
        out.append(path("roof", left, ridge))
        x, y = (left[0] + ridge[0]) / 2, (left[1] + ridge[1]) / 2
        angle = math.degrees(math.atan2(ridge[1] - left[1], ridge[0] - left[0]))
        turned = f' transform="rotate({angle:.2f} {x:.1f} {y:.1f})"'
        out.append(text(x, y - 8, f"stream {bench.stream:.1f} GB/s", "halo middle", turned))
        peaks = sorted([(bench.float_peak, "float"), (bench.int8_peak, "int8")], reverse=True)
        over_diagonal = spread([self.y(peak) for peak, _ in peaks], LINE, self.begin, self.end)
        for (peak, name), label_y, offset in zip(peaks, over_diagonal, (-7, 16)):
            x, y = self.x(peak / bench.stream), self.y(peak)
            out.append(path("roof", (x, y), (RIGHT, y)))
            label = f"{name} {peak:,.0f} Gop/s"
            if self.x(peaks[1][0] / bench.stream) > LEFT + TABLE:  # where no point is
                out.append(text(x - 14, label_y + 4, label, "halo end"))
            else:  # the higher above its line, the lower below
                out.append(text(RIGHT - 6, y + offset, label, "halo end"))
        return out

    def groups(self):
        """The points from left to right, apart where a table has room between."""
        out = []
        for point in sorted((p for one in self.bench.series for p in one.points), key=lambda p: p.intensity):
            if out and self.x(point.intensity) - self.x(out[-1][-1].intensity) < INSIDE + TABLE:
                out[-1].append(point)
            else:
                out.append([point])
        return out

    def table_of(self, group):
        """Where the labels of points, from the highest down, begin: x, and the y of each row."""
        x = self.x(max(p.intensity for p in group)) + INSIDE
        highest, lowest = self.begin + LINE, self.end - LINE / 2
        if x + TABLE <= RIGHT:
            roof = min(self.bench.stream * self.x.at(x), self.bench.float_peak, self.bench.int8_peak)
            highest = max(highest, self.y(roof) + 2 * LINE)
        else:
            x = RIGHT + BESIDE
        highest = min(highest, lowest - (len(group) - 1) * LINE)  # across a roof rather than out of the plot
        return x, spread([self.y(p.gops) for p in group], LINE, highest, lowest)

    def points(self):
        lines, marks, labels = [], [], []
        for group in self.groups():
            group.sort(key=lambda p: (self.y(p.gops), p.kind, p.part))
            x, rows = self.table_of(group)
            labels += [text(x + SHARE, rows[0] - LINE + 4, "of time", "quiet halo end"),
                       text(x + TABLE, rows[0] - LINE + 4, "of roof", "quiet halo end")]
            for point, row in zip(group, rows):
                at = (self.x(point.intensity), self.y(point.gops))
                name = NAMES.get(point.part, point.part)
                title = (f"{point.what}, {point.part}: {figure(point.gops)} Gop/s at {figure(point.intensity)} "
                         f"operations per byte, roof {figure(point.roof)} Gop/s")
                lines.append(path(f"leader {point.kind}", at, (x - 14, row), (x - 6, row)))
                marks.append(marker(point.kind, *at, title))
                labels += [marker(point.kind, x, row), text(x + 12, row + 4, name, "halo"),
                           text(x + SHARE, row + 4, percent(point.share), "halo end"),
                           text(x + TABLE, row + 4, percent(point.gops / point.roof), "halo end")]
        return lines + marks + labels


def caption(benches):
    steps = " or ".join(f"{n:,}" for n in sorted({bench.step_tokens for bench in benches}))
    lines = [
        "Bytes are the weights, and for attention the keys and values, that a part has to read; activations are left "
        "out.",
        f"A prompt reads the weights of the layers once every {steps} tokens, and those of the head once.",
        "The roofs are measured on all threads: reading memory, and instructions from register to register. "
        "Attention's peak is that of floats.",
    ]
    if any(p.gops > 1.005 * p.roof for bench in benches for one in bench.series for p in one.points):
        lines.append("More than 100 %: the stream is a median, and a part timed in a faster moment can exceed it.")
    return lines


def without_products(bench):
    """A line on what is not drawn."""
    names = dict.fromkeys(NAMES.get(part, part) for one in bench.series for part, _ in one.rest)
    shares = [f"{percent(sum(share for _, share in one.rest))} of {one.what}" for one in bench.series]
    return f"Not drawn, having no products: {', '.join(names)} ({', '.join(shares)})." if names else ""


def draw(benches):
    points = [p for bench in benches for one in bench.series for p in one.points]
    peaks = [peak for bench in benches for peak in (bench.float_peak, bench.int8_peak)]
    ridges = [peak / bench.stream for bench in benches for peak in (bench.float_peak, bench.int8_peak)]
    intensities = [p.intensity for p in points] + ridges
    x_ticks = doublings(min(intensities) / 1.2, max(intensities) * 1.5)
    y_ticks = rounded(min(p.gops for p in points) / 4, max(peaks + [p.gops for p in points]) * 1.3)
    body, top = [], 8
    for bench in benches:
        panel = Panel(bench, top, x_ticks, y_ticks)
        body += panel.draw()
        top = panel.end + BELOW
        note = without_products(bench)
        if note:
            body.append(text(LEFT, top, note, "quiet"))
            top += LINE + 3
    for line in caption(benches):
        body.append(text(LEFT, top, line, "quiet"))
        top += LINE + 3
    height = top + 8
    name = "Roofline of " + "; ".join(bench.title for bench in benches)
    size = f'width="{WIDTH}" height="{height:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {size} role="img">',
        f"<title>{escape(name)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" {size} rx="8"/>',
        *body,
        "</svg>",
        "",
    ])


def read(name):
    try:
        if name == "-":
            return read_bench("standard input", sys.stdin.buffer.read())
        with open(name, "rb") as file:
            return read_bench(name, file.read())
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from error


def main():
    parser = argparse.ArgumentParser(description="Draws what `vitrine bench --json` printed as a roofline.")
    parser.add_argument("files", nargs="*", default=["-"], metavar="FILE.json", help="none, or -: standard input")
    parser.add_argument("-o", "--output", metavar="SVG", help="the picture; standard output by default")
    options = parser.parse_args()
    try:
        picture = draw([read(name) for name in options.files])
        if options.output is None:
            sys.stdout.buffer.write(picture.encode("utf-8"))
        else:
            with open(options.output, "w", encoding="utf-8") as file:
                file.write(picture)
    except Failure as failure:
        sys.exit(refuse(str(failure)))
    except OSError as error:
        sys.exit(refuse(f"{options.output}: {error.strerror}"))


def refuse(line):
    print("roofline.py: " + " ".join(line.split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
