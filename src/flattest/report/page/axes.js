// From values to pixels and back. A logarithmic scale has no place for what is not positive.
function scale([low, high], log, from, to) {
  const by = log ? Math.log10 : Number, start = by(low), span = by(high) - start;
  return {
    log, domain: [low, high],
    at: (value) => (value === null || value === undefined || (log && value <= 0) ? NaN : from + (to - from) * (by(value) - start) / span),
    value: (pixel) => { const place = start + span * (pixel - from) / (to - from); return log ? 10 ** place : place; },
  };
}

// What an axis shows: the range asked for, or all values with a little room at the ends.
function domainOf(lists, { log = false, range = null, fromZero = false }, room) {
  if (range) return range;
  let [low, high] = [Infinity, -Infinity];
  for (const values of lists) {
    for (const value of values) {
      if (value === null || value === undefined || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  if (log) return [low / (high / low) ** room, high * (high / low) ** room];
  return [fromZero ? 0 : low - room * (high - low), high + room * (high - low)];
}

function ticks({ domain: [low, high], log }, count, whole = false) {
  return log && high / low >= 8 ? powers(low, high, count) : evenly(low, high, count, whole);
}

function evenly(low, high, count, whole) {
  const rough = Math.max((high - low) / count, whole ? 1 : 0), unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((times) => times * unit >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// Powers of ten; where there are few, 2 and 5 between them.
function powers(low, high, count) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const inside = (value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9);
  const tens = Array.from({ length: last - first + 1 }, (_, i) => first + i).filter((exponent) => inside(10 ** exponent));
  if (tens.length < 3) return Array.from({ length: last - first + 1 }, (_, i) => [1, 2, 5].map((times) => Number(`${times}e${first + i}`))).flat().filter(inside);
  const every = Math.ceil(tens.length / count);
  return tens.filter((exponent) => exponent % every === 0).map((exponent) => Number(`1e${exponent}`));
}

function tickText(value) {
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e4)) return String(Number(value.toPrecision(6)));
  const [digits, exponent] = value.toExponential().split("e");
  const raised = [...String(Number(exponent))].map((letter) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[letter] ?? "⁻").join("");
  return `${digits === "1" ? "" : `${Number(Number(digits).toPrecision(3))}·`}10${raised}`;
}
