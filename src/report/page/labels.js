// ---- labels of a plot, where they cover nothing

const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
const inside = (box, frame) => box.x >= frame.x && box.y >= frame.y && box.x + box.w <= frame.x + frame.w && box.y + box.h <= frame.y + frame.h;
const nearest = (box, at) => ({x: Math.max(box.x, Math.min(at.x, box.x + box.w)), y: Math.max(box.y, Math.min(at.y, box.y + box.h))});
const distance = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
const covers = (box, dot) => distance(dot, nearest(box, dot)) < dot.r;

// Whether a line from p to q crosses a box: what is left of it between the box's sides, one after the other (Liang and Barsky).
function crosses(box, [p, q]) {
  let from = 0, to = 1;
  for (const [step, room] of [[p.x - q.x, p.x - box.x], [q.x - p.x, box.x + box.w - p.x], [p.y - q.y, p.y - box.y], [q.y - p.y, box.y + box.h - p.y]]) {
    if (step === 0 && room < 0) return false;
    if (step < 0) from = Math.max(from, room / step);
    if (step > 0) to = Math.min(to, room / step);
  }
  return from < to;
}

// Places for a label of size w x h beside a dot: right, left, above, below, then the corners, near it first.
function besideDot({x, y, r}, w, h) {
  const places = [];
  for (const gap of [r + 3, r + 12, r + 24, r + 40]) {
    const near = gap * 0.7;
    places.push([x + gap, y - h / 2], [x - gap - w, y - h / 2], [x - w / 2, y - gap - h], [x - w / 2, y + gap],
      [x + near, y - near - h], [x + near, y + near], [x - near - w, y - near - h], [x - near - w, y + near]);
  }
  return places;
}

// Places along a line that rises to the right: above it, ending there, or below it, beginning there.
function besideLine([p, q], w, h) {
  const places = [];
  for (let part = 0.04; part < 1; part += 0.04) {
    const x = p.x + part * (q.x - p.x), y = p.y + part * (q.y - p.y);
    places.push([x - w - 4, y - h - 4], [x + 6, y + 4]);
  }
  return places;
}

// The line from a label to its dot, where it had to keep away from it; null: it stands beside it.
function leader(box, dot) {
  if (!dot) return null;
  const end = nearest(box, dot);
  return distance(dot, end) < dot.r + 8 ? null : [end, dot];
}

// On which side of the line from p to q a point lies; whether two lines cross.
const side = ([p, q], at) => Math.sign((q.x - p.x) * (at.y - p.y) - (q.y - p.y) * (at.x - p.x));
const cross = (a, b) => side(a, b[0]) !== side(a, b[1]) && side(b, a[0]) !== side(b, a[1]);

// Gives each label, the most important one first, the first of its places where it covers no line, no dot and no other label, and lies in the frame: as `box`,
// with a line to its dot that crosses no label and none of the lines. One that finds none is left out.
function placed(labels, lines, dots, frame) {
  const found = [];
  for (const label of labels) {
    const all = [...lines, ...found.map(f => f.leader).filter(Boolean)];
    const free = b => inside(b, frame) && !found.some(f => overlap(b, f.box)) && !all.some(l => crosses(b, l)) && !dots.some(d => covers(b, d));
    const clear = l => !l || (!found.some(f => crosses(f.box, l)) && !lines.some(other => cross(l, other)));
    const box = label.places.map(([x, y]) => ({x, y, w: label.w, h: label.h})).find(b => free(b) && clear(leader(b, label.dot)));
    if (box) found.push({...label, box, leader: leader(box, label.dot)});
  }
  return found;
}

let ruler = null;
function textWidth(text) {
  ruler = ruler || document.createElement("canvas").getContext("2d");
  ruler.font = "12px system-ui, sans-serif";
  return Math.ceil(ruler.measureText(text).width * 1.04) + 2;
}
