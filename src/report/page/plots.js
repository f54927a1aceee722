// ---- plots (by D3: scales, axes, lines)

// One element of a plot is in the order of Tab; arrows go on to the next ones, Enter opens.
function walked(elements) {
  elements.forEach((node, i) => {
    node.setAttribute("tabindex", i ? -1 : 0);
    node.addEventListener("keydown", e => {
      const to = elements[i + ({ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[e.key] || 0)];
      if (e.key === "Enter") return node.dispatchEvent(new MouseEvent("click"));
      if (!to || to === node) return;
      e.preventDefault();
      node.setAttribute("tabindex", -1);
      to.setAttribute("tabindex", 0);
      to.focus();
    });
  });
}

const opens = (n, what) => ({role: "button", "data-n": n, "aria-label": what, onclick: () => pick(n)});

// All kernels in their order, as wide as they take time.
function strip(total) {
  const list = kernelsRun(), x = d3.scaleLinear([0, total || 1], [0, 1000]), begins = d3.cumsum(list, k => k.us);
  const parts = list.map((k, i) => {
    const what = k.name + ", " + time(k.us), at = x(i ? begins[i - 1] : 0);
    return svg("rect", {x: at, y: 4, width: Math.max(x(k.us), 0.5), height: 32, class: "dot", ...opens(k.n, what)}, svg("title", {}, what));
  });
  walked(parts);
  return svg("svg", {viewBox: "0 0 1000 40", role: "group", "aria-label": "Kernels in order, as wide as their time. Arrows go from one to the next."}, parts);
}

function axes(picture, bottom, left, {W, H, margin}, below, beside) {
  const at = d3.select(picture);
  at.append("g").attr("class", "axes").attr("transform", `translate(0 ${H - margin.bottom})`).call(bottom);
  at.append("g").attr("class", "axes").attr("transform", `translate(${margin.left} 0)`).call(left);
  picture.append(svg("text", {x: (margin.left + W - margin.right) / 2, y: H - 6, "text-anchor": "middle"}, below));
  if (beside) picture.append(svg("text", {x: 14, y: H / 2, transform: `rotate(-90 14 ${H / 2})`, "text-anchor": "middle"}, beside));
}

// Kernels whose names differ in their number alone have one label, at the busiest of them.
function dotLabels(list, dotOf) {
  const groups = d3.groups(list, k => k.name.replace(/(_\d+)+$/, ""));
  return groups.map(([name, alike]) => {
    const text = short(name, 30) + (alike.length > 1 ? " (" + alike.length + ")" : ""), w = textWidth(text);
    return {text, w, h: 15, dot: dotOf(alike[0]), places: besideDot(dotOf(alike[0]), w, 15)};
  });
}

function labelShapes({text, box, leader: line}) {
  const shape = svg("text", {class: "label", x: box.x + 1, y: box.y + 12}, text);
  return line ? [svg("line", {class: "leader", x1: line[0].x, y1: line[0].y, x2: line[1].x, y2: line[1].y}), shape] : [shape];
}

// Operations a second over operations a byte, both by powers of ten.
function roofline() {
  const limits = R().limits, list = kernelsRun().filter(k => k.flops > 0 && k.bytes > 0 && k.us > 0).sort((a, b) => b.us - a.us);
  if (!limits.memory_gb_s || !list.length) return [el("p", {class: "dim"}, "No kernel computes, or the machine's limits were not measured.")];
  const frame = {W: 960, H: 540, margin: {left: 64, right: 20, top: 16, bottom: 44}}, {W, H, margin} = frame, density = k => k.flops / k.bytes;
  const powers = (least, most) => [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(most))];
  const densities = d3.extent(list, density), rates = d3.extent(list, k => k.gflop_s);
  const x = d3.scaleLog(powers(Math.min(0.1, densities[0]), Math.max(100, densities[1])), [margin.left, W - margin.right]);
  const y = d3.scaleLog(powers(Math.max(1e-3, Math.min(1, rates[0])), Math.max(limits.gflop_s, rates[1])), [H - margin.bottom, margin.top]).clamp(true);
  const about = "Roofline. Arrows go from kernel to kernel, the busiest first.";
  const picture = svg("svg", {id: "plot", viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": about});
  const tens = scale => d3.range(...scale.domain().map((v, i) => Math.round(Math.log10(v)) + i)).map(i => 10 ** i);
  const byTens = axis => axis.tickValues(tens(axis.scale())).tickFormat(v => String(+v.toPrecision(1)));
  axes(picture, byTens(d3.axisBottom(x)).tickSize(margin.top + margin.bottom - H).tickPadding(8),
    byTens(d3.axisLeft(y)).tickSize(margin.left + margin.right - W).tickPadding(6), frame, "operations for a byte", "GFLOP/s");
  const lines = [], labels = [], [low, high] = x.domain();
  const label = (text, line) => { const w = textWidth(text); labels.push({text, w, h: 15, places: besideLine(line, w, 15)}); };
  for (const [rateOf, name] of [[limits.memory_gb_s, "memory"], [limits.cache_gb_s, "caches"]]) {
    if (!rateOf) continue;
    const knee = limits.gflop_s / rateOf, start = Math.max(low, y.domain()[0] / rateOf);
    const roof = [start, knee, high].map(v => ({x: x(v), y: y(Math.min(limits.gflop_s, v * rateOf))}));
    picture.append(svg("path", {class: "roof", d: d3.line(p => p.x, p => p.y)(roof)}));
    lines.push([roof[0], roof[1]], [roof[1], roof[2]]);
    label(name + ", " + rate(rateOf) + " GB/s", [roof[0], roof[1]]);
    if (lines.length === 2) label("arithmetic, " + rate(limits.gflop_s) + " GFLOP/s", [roof[2], roof[1]]);
  }
  const size = d3.scaleSqrt([0, list[0].us], [4, 18]), dotOf = k => ({x: x(density(k)), y: y(k.gflop_s), r: size(k.us)});
  const dots = list.map(k => {
    const {x: cx, y: cy, r} = dotOf(k), reached = rate(k.gflop_s) + " GFLOP/s";
    return svg("circle", {class: "dot", cx, cy, r, ...opens(k.n, k.name + ", " + reached)},
      svg("title", {}, k.n + ": " + k.name + "\n" + place(k) + "\n" + time(k.us) + ", " + reached + ", " + rate(k.gb_s) + " GB/s"));
  });
  walked(dots);
  labels.push(...dotLabels(list, dotOf).slice(0, 24));
  const whole = {x: margin.left + 2, y: margin.top, w: W - margin.left - margin.right - 4, h: H - margin.top - margin.bottom};
  picture.append(...dots, ...placed(labels, lines, list.map(dotOf), whole).flatMap(labelShapes));
  const legend = "A kernel is as large as its time; a number behind a name says how many are called so. Limits: ";
  return [el("p", {class: "dim"}, legend + (limits.how || "") + "."), picture];
}

// Buffers as rectangles: from the kernel that writes it to the last that reads it, at its place in the block. The line is what is needed in all.
let byTime = false;
function scratchView() {
  const memory = R().memory, kernels = R().kernels, total = memory.arena_bytes;
  const list = memory.buffers.filter(b => b.from !== undefined && b.bytes > 0);
  if (!list.length || !total) return [el("p", {class: "dim"}, "The program needs no scratch memory.")];
  const frame = {W: 960, H: 440, margin: {left: 76, right: 16, top: 24, bottom: 44}}, {W, H, margin} = frame;
  const live = kernels.map((_, n) => list.filter(b => b.from <= n && n <= b.to)), load = live.map(x => d3.sum(x, b => b.bytes)), peak = d3.maxIndex(load);
  const ends = d3.cumsum(kernels, k => byTime ? k.us || 0 : 1), begin = n => n ? ends[n - 1] : 0, last = ends[ends.length - 1] || 1;
  const x = d3.scaleLinear([0, last], [margin.left, W - margin.right]), y = d3.scaleLinear([0, total], [H - margin.bottom, margin.top]);
  const picture = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": "Scratch memory over a call. Arrows go from tensor to tensor."});
  axes(picture, byTime ? d3.axisBottom(x).ticks(8).tickFormat(time) : d3.axisBottom(x).ticks(Math.min(12, kernels.length)).tickFormat(d3.format("d")),
    d3.axisLeft(y).ticks(6).tickFormat(b => amount(b, "B")), frame, byTime ? "time of a call" : "kernels, in order");
  const parts = [...list].sort((a, b) => a.from - b.from || a.offset - b.offset).map((b, i) => {
    const what = b.name + ", " + amount(b.bytes, "B") + ", kernels " + b.from + " to " + b.to, top = y(Math.min(total, b.offset + b.bytes));
    const left = x(begin(b.from)), size = {width: Math.max(1, x(ends[b.to]) - left), height: Math.max(1, y(b.offset) - top)};
    return svg("rect", {class: "part", x: left, y: top, ...size, fill: d3.schemeTableau10[i % 10], ...opens(b.from, what)}, svg("title", {}, what));
  });
  walked(parts);
  const steps = load.flatMap((bytes, n) => [[x(begin(n)), y(bytes)], [x(ends[n]), y(bytes)]]), middle = x((begin(peak) + ends[peak]) / 2);
  picture.append(...parts, svg("path", {class: "roof", d: d3.line()(steps)}),
    svg("line", {class: "roof", "stroke-dasharray": "3 3", x1: middle, x2: middle, y1: margin.top - 4, y2: H - margin.bottom}),
    svg("text", {x: middle, y: 14, "text-anchor": middle > W / 2 ? "end" : "start"}, "peak: " + amount(load[peak], "B") + " at kernel " + peak));
  const turn = el("button", {onclick: () => { byTime = !byTime; show("memory"); }}, byTime ? "Kernels in order" : "As long as they take");
  const legend = "Scratch memory of a call: " + amount(total, "B") + " = " + memory.arena_formula + ". Line: what is needed at once. ";
  return [el("p", {}, legend, turn), picture, el("h2", {}, "Who owns the peak"), ownersTable([...live[peak]].sort((a, b) => b.bytes - a.bytes))];
}

function ownersTable(buffers) {
  return el("table", {}, heads("tensor", "#bytes", "shape", "#at", "kernels"), buffers.map(b => el("tr", {},
    el("td", {class: "text"}, b.name), el("td", {class: "n"}, amount(b.bytes, "B")), el("td", {class: "text"}, b.dtype + " " + shapeText(b.shape)),
    el("td", {class: "n"}, b.offset), el("td", {class: "links"}, links([b.from]), b.to !== b.from ? links([b.to]) : null))));
}
