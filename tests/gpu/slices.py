# SPDX-License-Identifier: Apache-2.0
"""What `work slices` tells: when a context was on the device, and when what it launched into idle streams began."""

AT_ONCE_US = 30


def read(text):
    """Gaps in which the context was off, as (from, to), and looks as (kind, before, called, seen, stamps), ns."""
    gaps, looks = [], []
    for line in text.splitlines():
        kind, *figures = line.split()
        figures = [float(figure) for figure in figures]
        if kind == "gap":
            gaps.append(tuple(figures))
        else:
            looks.append((kind, *figures[:3], figures[3:]))
    return gaps, looks


def clocks(calibration):
    """A function from the host's time to the GPU's: a kernel begins no sooner than it was launched. Where one always has to
    wait that tells nothing: known by looks while nobody else was there, before and after."""
    pairs = sorted((called, stamps[0]) for kind, _, called, _, stamps in calibration if kind == "alone")
    half = len(pairs) // 2
    (x0, y0), (x1, y1) = (min(part, key=lambda pair: pair[1] - pair[0]) for part in (pairs[:half], pairs[half:]))
    rate = (y1 - y0 - (x1 - x0)) / (x1 - x0)
    return lambda host: y0 + (host - x0) * (1 + rate)


def quantiles(values):
    values = sorted(values)
    at = lambda part: values[min(len(values) - 1, int(part * len(values)))]
    return ", ".join(f"{at(part):.0f}" for part in (0.05, 0.25, 0.5, 0.75, 0.95)) if values else "-"


def tell(text, say):
    gaps, looks = read(text)
    to_gpu = clocks(looks)
    begun = [to for _, to in gaps]
    on = [(a[1], b[0]) for a, b in zip(gaps, gaps[1:])]
    say(f"{len(gaps)} gaps; off for us:", quantiles([(to - since) / 1e3 for since, to in gaps]), "; on for us:", quantiles([(to - since) / 1e3 for since, to in on]))
    for kind in ("first", "event", "kernel", "again", "pair"):
        kinds = {"on": [0, 0], "off": [0, 0]}
        after, sooner, waits, apart = [], [], [], []
        for what, before, called, seen, stamps in looks:
            if what != kind:
                continue
            at = to_gpu(called)
            # An event says when it was seen, a kernel when it began.
            began = stamps[0] if stamps[0] else to_gpu(seen) - 3e3
            if kind == "pair":
                apart.append((stamps[1] - stamps[0]) / 1e3)
            if any(since - 20e3 < at < since + 5e3 or to - 5e3 < at < to + 20e3 for since, to in gaps):
                continue
            where = "off" if any(since < at < to for since, to in gaps) else "on"
            late = began - at > AT_ONCE_US * 1e3
            kinds[where][late] += 1
            if late and where == "on":
                waits.append((began - at) / 1e3)
            if late:
                later = [to for to in begun if to <= began + 20e3]
                if later:
                    after.append((began - later[-1]) / 1e3)
                    sooner.append(sum(to > at for to in later))
        say(
            f"{kind}: while on: {kinds['on'][0]} at once, {kinds['on'][1]} late; while off: {kinds['off'][0]} and {kinds['off'][1]}; late on waited us: {quantiles(waits)};",
            f"late ones began us after the context's slice: {quantiles(after)}; that many slices later: {quantiles(sooner)}" + (f"; the second after us: {quantiles(apart)}" if apart else ""),
        )
