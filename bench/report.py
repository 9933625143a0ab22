"""Tables and the HTML report of bench/run: nothing is fetched, plots are inline SVG."""
import html as escape
import math

COLOURS = ["#1b6ca8", "#c8553d", "#3c8d5a", "#8a5fb0", "#b08a2e", "#5c6b73", "#c2478b", "#2a9d8f", "#7a5c3e", "#4b5fd0"]


def number(x):
    """Three digits that count."""
    if x is None:
        return "-"
    for limit, unit in (1e6, "M"), (1e3, "k"):
        if abs(x) >= limit:
            return "%.3g%s" % (x / limit, unit) if abs(x) < 999.5 * limit else "%.0f%s" % (x / limit, unit)
    return "%.3g" % x


def spread(r, key):
    if key not in r["median"]:
        return "-"
    low, high = r["range"][key]
    return "%s (%s-%s)" % (number(r["median"][key]), number(low), number(high))


def micro(us):
    if us is None:
        return "-"
    return "%.1f ms" % (us / 1000) if us >= 1000 else "%.0f us" % us


def mib(kib):
    return "-" if kib is None else "%.1f" % (kib / 1024)


def calls(r):
    each = r.get("syscalls")
    return None if not each else "%.2f" % sum(each.values())


def columns(results):
    """(heading, function of a result); a column that says nothing is left out."""
    every = [
        ("server", lambda r: r["server"] + (" " + r["version"] if r["version"] else "")),
        ("answers/s", lambda r: spread(r, "per_s")),
        ("per CPU s", lambda r: spread(r, "per_cpu_s")),
        ("p50", lambda r: micro(r["median"].get("p50_us"))),
        ("p99", lambda r: micro(r["median"].get("p99_us"))),
        ("p99.9", lambda r: micro(r["median"].get("p99_9_us"))),
        ("idle MiB", lambda r: mib(r.get("idle_kib"))),
        ("loaded MiB", lambda r: mib(r.get("loaded_kib"))),
        ("of it files", lambda r: mib(r.get("loaded_file_kib")) if (r.get("loaded_file_kib") or 0) > 4096 else "-"),
        ("MiB", lambda r: mib(r["median"].get("pss_kib"))),
        ("MiB more", lambda r: mib(r["median"].get("more_kib"))),
        ("B written", lambda r: number(r["median"].get("written"))),
        ("device B", lambda r: number(r["median"].get("device"))),
        ("calls", lambda r: calls(r) or "-"),
        ("writes are", lambda r: r["durability"] if r["put"] else "-"),
        ("restart s", lambda r: "%.2f, killed %.2f" % (r["restart_s"]["TERM"], r["restart_s"]["KILL"]) if "restart_s" in r else "-"),
    ]
    return [(h, f) for h, f in every if h == "server" or any(f(r) != "-" for r in results)]


def ordered(results):
    return sorted(results, key=lambda r: (-(r["median"].get("per_cpu_s") or 0), r["median"].get("pss_kib") or 0))


def aligned(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows)


def table(results):
    if not results:
        return ""
    cs = columns(results)
    rows = [[h for h, _ in cs]] + [[f(r) for _, f in cs] for r in ordered(results)]
    return "\n== %s: %s\n%s" % (results[0]["workload"], results[0]["what"], aligned(rows))


def goals_table(rows):
    return "\n" + aligned([["measure", "goal", "measured", ""]] + [[r.measure, r.goal, r.value, r.verdict()] for r in rows])


# --- plots -------------------------------------------------------------------


def colour_of(names):
    return {n: COLOURS[i % len(COLOURS)] for i, n in enumerate(names)}


def svg(width, height, parts):
    return '<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img">%s</svg>' % (width, height, width, height, "".join(parts))


def text(x, y, s, anchor="start", css=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>' % (x, y, anchor, css, escape.escape(s))


def bars(results, key, colours, title):
    """Medians as bars, the range of the rounds as a line."""
    results = [r for r in ordered(results) if key in r["median"]]
    if not results:
        return ""
    left, width, step = 150, 470, 22
    most = max(r["range"][key][1] for r in results) or 1
    parts = [text(0, 14, title, css="t")]
    for i, r in enumerate(results):
        y = 24 + i * step
        x = lambda v: left + v / most * (width - left - 60)  # noqa: E731
        low, high = r["range"][key]
        parts += [text(left - 6, y + 13, r["server"], "end"),
                  '<rect x="%d" y="%.1f" width="%.1f" height="15" fill="%s"/>' % (left, y + 1, max(1, x(r["median"][key]) - left), colours[r["server"]]),
                  '<path d="M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6" stroke="#222" fill="none"/>' % (
                      x(low), y + 8.5, x(high), x(low), y + 5.5, x(high), y + 5.5),
                  text(x(high) + 5, y + 13, number(r["median"][key]))]
    return svg(width, 30 + len(results) * step, parts)


def latencies(results, colours, title):
    """Share of answers slower than a time: both scales logarithmic, so that the tail is seen."""
    results = [r for r in results if r.get("buckets")]
    if not results:
        return ""
    left, top, width, height, nines = 46, 24, 470, 200, 4
    low = math.floor(math.log10(min(r["buckets"][0][0] for r in results) or 0.1))
    high = math.ceil(math.log10(max(r["buckets"][-1][0] for r in results)))
    high = max(high, low + 1)
    x = lambda us: left + (math.log10(us) - low) / (high - low) * (width - left - 10)  # noqa: E731
    y = lambda share: top + -math.log10(max(share, 10 ** -nines)) / nines * (height - top - 24)  # noqa: E731
    parts = [text(0, 14, title, css="t")]
    for e in range(low, high + 1):
        at = x(10 ** e)
        label = "%g us" % 10 ** e if e < 3 else "%g ms" % 10 ** (e - 3) if e < 6 else "%g s" % 10 ** (e - 6)
        parts += ['<path d="M%.1f %dV%.1f" class="g"/>' % (at, top, y(0)), text(at, height - 8, label, "middle")]
    for n, label in (0, "all"), (1, "10 %"), (2, "1 %"), (3, "0.1 %"), (4, "0.01 %"):
        parts += ['<path d="M%d %.1fH%d" class="g"/>' % (left, y(10 ** -n), width - 10), text(left - 4, y(10 ** -n) + 4, label, "end")]
    for r in results:
        total = sum(n for _, n in r["buckets"])
        seen, points = 0, []
        for us, n in r["buckets"]:
            points.append("%.1f,%.1f" % (x(us), y(1 - seen / total)))
            seen += n
        parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"><title>%s</title></polyline>' % (
            " ".join(points), colours[r["server"]], escape.escape(r["server"])))
    return svg(width, height, parts)


CSS = """body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1040px;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.6em 0;font-size:13px}td,th{padding:2px 10px 2px 0;text-align:left;border-bottom:1px solid #ddd;white-space:nowrap}
.wide{overflow-x:auto}svg{margin:.4em 1.5em .4em 0;max-width:100%;height:auto;vertical-align:top}svg text{font:11px system-ui,sans-serif;fill:#333}
svg .t{font-weight:600;font-size:12px}svg .g{stroke:#ddd;fill:none}.met{color:#2b7a45}.missed{color:#b3261e;font-weight:600}h2{margin-top:1.6em;font-size:17px}"""


def html_table(head, rows, css=lambda row: ""):
    lines = ["<tr>%s</tr>" % "".join("<th>%s</th>" % escape.escape(h) for h in head)]
    lines += ['<tr class="%s">%s</tr>' % (css(r), "".join("<td>%s</td>" % escape.escape(c) for c in r)) for r in rows]
    return '<div class="wide"><table>%s</table></div>' % "".join(lines)


def html(doc, goal_rows):
    m, names = doc["machine"], []
    for r in doc["results"]:
        if r["server"] not in names:
            names.append(r["server"])
    colours = colour_of(names)
    out = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>holdfast: measured</title>"
           "<style>%s</style><h1>holdfast beside its peers</h1>" % CSS,
           "<p>%s. %s, %d cores, %d GiB, Linux %s. %d rounds of %g s for each server, in rotating order; medians, and the range of the rounds. "
           "<b>Per CPU s</b>: answers per second of CPU time of all the server's processes.</p>" % (
               m["date"], escape.escape(m["cpu"]), m["cores"], m["memory_gib"], escape.escape(m["kernel"]), doc["rounds"], doc["seconds"])]
    shown = [g for g in goal_rows if g.ok is not None]
    if shown:
        out += ["<h2>Goals</h2>", html_table(["measure", "goal", "measured", ""], [[g.measure, g.goal, g.value, g.verdict()] for g in shown],
                                             lambda r: r[-1])]
    for workload in dict.fromkeys(r["workload"] for r in doc["results"]):
        results = [r for r in doc["results"] if r["workload"] == workload]
        cs = columns(results)
        out += ["<h2>%s</h2><p>%s</p>" % (escape.escape(workload), escape.escape(results[0]["what"])),
                bars(results, "per_cpu_s", colours, "answers per server CPU second"), bars(results, "per_s", colours, "answers per second"),
                latencies(results, colours, "share of answers slower than"), bars(results, "pss_kib", colours, "PSS, KiB"),
                html_table([h for h, _ in cs], [[f(r) for _, f in cs] for r in ordered(results)])]
    return "\n".join(out) + "</html>\n"
