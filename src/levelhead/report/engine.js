// The exact path: every change of every prediction, and the model's state at the gamma shown.

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The gammas that the slider can stop at: every 1 / step up to the end, and the special ones; divided as in Python.
function gammaStops(end, special, step) {
  const grid = Array.from({ length: Math.round(end * step) + 1 }, (_, i) => i / step);
  return Float64Array.from(new Set([...grid, ...special])).sort();
}

class Model {
  constructor(facts, rule, bytes) {
    const { end, special, step, samples, events } = rule;
    this.facts = facts;
    this.rule = rule;
    this.stops = gammaStops(end, special, step);
    this.total = samples.reduce((a, b) => a + b, 0);
    this.samples = samples;
    const read = bytePlanes(bytes);
    const start = read(this.total), size = read(this.stops.length), delta = read(events), newClass = read(events);
    this.first = Uint32Array.from({ length: this.stops.length + 1 }, () => 0); // the first event of each stop
    for (let s = 0; s < size.length; s++) this.first[s + 1] = this.first[s] + size[s];
    this.mass = facts.mass || samples.map((n) => n > 0 ? 1 / samples.filter(Boolean).length : 0);
    this.indexMoves(start, delta, newClass);
    this.reset();
    this.before = { right: this.right.slice(), cells: this.cells.slice(), predicted: this.predicted.slice() };
    this.curve = this.computeCurves();
  }

  // Turns each event into a move of one sample between cells (true, predicted), numbered in order of appearance.
  indexMoves(start, delta, newClass) {
    const classes = this.facts.classes, numbers = new Map(), truth = [], predicted = [];
    const number = (t, p) => {
      const key = t * classes + p;
      let cell = numbers.get(key);
      if (cell === undefined) {
        numbers.set(key, cell = truth.length);
        truth.push(t);
        predicted.push(p);
      }
      return cell;
    };
    this.startCells = new Uint32Array(this.total);
    const now = this.startCells.slice(), label = new Uint32Array(this.total);
    for (let t = 0, i = 0; t < this.samples.length; t++) for (let j = 0; j < this.samples[t]; j++, i++) label[i] = t;
    for (let i = 0; i < this.total; i++) now[i] = this.startCells[i] = number(label[i], start[i]);
    this.from = new Uint32Array(newClass.length);
    this.to = new Uint32Array(newClass.length);
    for (let s = 0; s < this.stops.length; s++) {
      let i = 0;
      for (let e = this.first[s]; e < this.first[s + 1]; e++) {
        i += delta[e];
        this.from[e] = now[i];
        this.to[e] = now[i] = number(label[i], newClass[e]);
      }
    }
    this.truth = Uint32Array.from(truth);
    this.guess = Uint32Array.from(predicted);
    this.hit = Uint8Array.from(truth, (t, c) => t === predicted[c] ? 1 : 0);
  }

  reset() {
    this.stop = 0;
    this.cells = new Int32Array(this.truth.length);
    this.right = new Int32Array(this.samples.length);
    this.predicted = new Int32Array(this.facts.classes);
    for (const cell of this.startCells) this.move(cell, 1);
    for (let e = this.first[0]; e < this.first[1]; e++) { this.move(this.from[e], -1); this.move(this.to[e], 1); }
  }

  move(cell, by) {
    this.cells[cell] += by;
    this.predicted[this.guess[cell]] += by;
    if (this.hit[cell]) this.right[this.truth[cell]] += by;
  }

  // Goes to a stop, forward or backward, by the changes in between.
  goTo(stop) {
    for (let e = this.first[this.stop + 1]; e < this.first[stop + 1]; e++) {
      this.move(this.from[e], -1);
      this.move(this.to[e], 1);
    }
    for (let e = this.first[this.stop + 1] - 1; e >= this.first[stop + 1]; e--) {
      this.move(this.to[e], -1);
      this.move(this.from[e], 1);
    }
    this.stop = stop;
  }

  get gamma() { return this.stops[this.stop]; }

  // Returns a gamma of the grid, in as few digits as it needs; a special one with all its digits.
  text(gamma, exact = false) {
    return String(exact && this.rule.special.includes(gamma) ? gamma : Math.round(gamma * this.rule.step) / this.rule.step);
  }

  // Returns the stop nearest to a gamma.
  nearest(gamma) {
    let low = 0, high = this.stops.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stops[middle] < gamma) low = middle + 1; else high = middle;
    }
    return low > 0 && gamma - this.stops[low - 1] < this.stops[low] - gamma ? low - 1 : low;
  }

  // Returns the next stop, up or down, at which a prediction changes; the same stop if there is none.
  nextChange(from, direction) {
    for (let s = from + direction; s >= 0 && s < this.stops.length; s += direction) {
      const changed = direction > 0 ? s : s + 1;
      if (this.first[changed + 1] > this.first[changed]) return s;
    }
    return from;
  }

  error(state = this) { return 1 - state.right.reduce((a, b) => a + b, 0) / this.total; }

  recall(c, state = this) { return this.samples[c] > 0 ? state.right[c] / this.samples[c] : NaN; }

  balancedError(state = this) {
    let found = 0;
    for (let c = 0; c < this.samples.length; c++) if (this.mass[c]) found += this.mass[c] * this.recall(c, state);
    return 1 - found;
  }

  meanRecall(members, state = this) {
    let found = 0;
    for (const c of members) found += this.recall(c, state);
    return found / members.length;
  }

  share(c, state = this) { return state.predicted[c] / this.total; }

  target(c) { return this.facts.target ? this.facts.target[c] : 1 / this.facts.classes; }

  mismatch(state = this) {
    let off = 0;
    for (let c = 0; c < this.facts.classes; c++) off += Math.abs(this.share(c, state) - this.target(c));
    return off / 2;
  }

  // Returns both curves in percent, with a point at every stop at which a prediction changes.
  computeCurves() {
    const curve = { gammas: [], balanced: [], error: [] }, labelled = this.facts.labelled;
    let wrong = labelled ? this.error() : 0, balanced = labelled ? this.balancedError() : this.mismatch();
    const off = Float64Array.from({ length: this.facts.classes }, (_, c) => this.share(c) - this.target(c));
    const shift = (c, by) => { const was = Math.abs(off[c]); off[c] += by; return (Math.abs(off[c]) - was) / 2; };
    for (let s = 0; s < this.stops.length; s++) {
      for (let e = this.first[s]; s > 0 && e < this.first[s + 1]; e++) {
        const [a, b] = [this.from[e], this.to[e]], turned = this.hit[b] - this.hit[a], t = this.truth[a];
        if (!labelled) balanced += shift(this.guess[a], -1 / this.total) + shift(this.guess[b], 1 / this.total);
        else if (turned) {
          wrong -= turned / this.total;
          balanced -= turned * this.mass[t] / this.samples[t];
        }
      }
      if (s === 0 || this.first[s + 1] > this.first[s] || s === this.stops.length - 1) {
        curve.gammas.push(this.stops[s]);
        curve.balanced.push(100 * balanced);
        curve.error.push(100 * wrong);
      }
    }
    return curve;
  }
}

// Reads arrays of 32-bit numbers, each stored as all lowest bytes, then all next ones, up to the highest.
function bytePlanes(bytes) {
  let at = 0;
  return (length) => {
    const values = new Uint32Array(length);
    for (let plane = 0; plane < 4; plane++, at += length) {
      for (let i = 0; i < length; i++) values[i] |= bytes[at + i] << (8 * plane);
    }
    return values;
  };
}
