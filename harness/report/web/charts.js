'use strict';
// Measurements: curves (drawn by uPlot), and heat maps of pairs.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Lines differ by dash pattern, not only by color. Limits and references have their own patterns.
const DASHES = [[], [10, 4], [2, 4], [10, 4, 2, 4], [16, 6], [4, 4]];

// What curves are over: the name and text of a value, the scale, and the range of the figures.
const AXES = {
  size: {name: 'size', over: 'message size', text: bytes, scale: {time: false, distr: 3, log: 2}, range: (_, low, high) => [0, (high || 1) * 1.08]},
  messages: {name: 'messages', over: 'number of messages', text: count => count.toLocaleString('en'), scale: {time: false},
    range: (_, low, high) => { const margin = Math.max((high - low) / 8, high / 50, 0.5); return [Math.max(low - margin, 0), high + margin]; }},
};

function curveChart(measure, curves) {
  const axisOf = AXES[curves[0].axis || 'size'];
  const unit = curves[0].unit;
  const sizes = [...new Set(curves.flatMap(curve => curve.points.map(([size]) => size)))].sort((a, b) => a - b);
  const values = curves.map(curve => {
    const at = new Map(curve.points);
    return sizes.map(size => at.get(size) ?? null);
  });
  const area = h('div', {class: 'chart', role: 'img', 'aria-label': `${measure} by ${axisOf.over}; the table below has the figures`});
  const text = value => value === null || value === undefined ? '–' : String(Number(value.toPrecision(4)));
  let plot = null;
  const width = () => Math.max(area.clientWidth, 240);
  const draw = () => {
    if (plot) plot.destroy();
    let plain = 0;
    const axis = {stroke: css('--dim'), grid: {stroke: css('--line'), width: 1}, ticks: {stroke: css('--line'), width: 1}, font: '12px system-ui, sans-serif'};
    plot = new uPlot({
      width: width(), height: 300, padding: [12, 28, 0, 0], cursor: {y: false}, scales: {x: axisOf.scale, y: {range: axisOf.range}},
      axes: [
        {...axis, space: 56, values: (_, splits) => splits.map(size => size === null ? '' : axisOf.text(size))},
        {...axis, size: 62, label: unit, labelFont: '12px system-ui, sans-serif', labelSize: 18},
      ],
      series: [{label: axisOf.name, value: (_, size) => size === null || size === undefined ? '–' : axisOf.text(size)}, ...curves.map(curve => {
        const limit = curve.kind === 'limit', color = limit ? css('--bad') : css(curve.kind === 'reference' ? '--dim' : `--line-${plain % 6 + 1}`);
        const dash = limit ? [2, 3] : curve.kind === 'reference' ? [6, 4] : DASHES[plain++ % DASHES.length];
        return {label: curve.subject, stroke: color, width: 2, dash, spanGaps: true, points: {show: !limit, size: 7, fill: css('--back')}, value: (_, value) => text(value)};
      })],
      legend: {markers: {width: 3, dash: (_, i) => i > 0 && curves[i - 1].kind !== 'subject' ? 'dashed' : 'solid'}},
    }, [sizes, ...values], area);
  };
  new ResizeObserver(() => {
    if (area.clientWidth === 0) return;
    if (plot) plot.setSize({width: width(), height: 300});
    else draw();
  }).observe(area);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => plot && draw());
  return h('figure', {class: 'figure'}, h('figcaption', {class: 'chart-title'}, `${measure[0].toUpperCase()}${measure.slice(1)}`, h('span', {class: 'dim'}, ` ${unit}, by ${axisOf.over}`)), area,
    h('details', null, h('summary', null, 'Figures as a table'),
      scroller(measure, table([axisOf.name, ...curves.map(curve => curve.subject + (curve.kind === 'subject' ? '' : ` (${curve.kind})`))],
        sizes.map((size, i) => [axisOf.text(size), ...values.map(column => text(column[i]))]), {class: 'data'}))));
}

function curvesSection(documents) {
  const charts = new Map();
  for (const curve of documents.flatMap(document => document.curves || [])) {
    if (curve.points.length === 0) continue;
    const key = `${curve.measure}\n${curve.unit}`;
    charts.set(key, [...(charts.get(key) || []), curve]);
  }
  if (charts.size === 0) return null;
  return section('measurements', 'Measurements', [...charts.values()].map(curves => curveChart(curves[0].measure, curves)));
}


const MOST_COLUMNS = 40;
const MOST_NAMED = 50;
// The figures of a map: the field, its text, and which value is worse.
const FIGURES = {
  bandwidth: {field: 'bits_per_second', text: rate, worse: Math.min, more: 'more is better'},
  'latency p50': {field: 'latency_p50', text: duration, worse: Math.max, more: 'less is better'},
  'latency p99': {field: 'latency_p99', text: duration, worse: Math.max, more: 'less is better'},
};
const byName = new Intl.Collator('en', {numeric: true}).compare;

function heatMap(pairs, name) {
  const {field, text, worse, more} = FIGURES[name];
  const ends = [...new Set(pairs.flatMap(pair => [pair.from, pair.to]))].sort(byName);
  const each = Math.ceil(ends.length / MOST_COLUMNS), columns = Math.ceil(ends.length / each);
  const place = new Map(ends.map((end, i) => [end, Math.floor(i / each)]));
  const cells = new Map();
  for (const pair of pairs) {
    const key = place.get(pair.from) * columns + place.get(pair.to), cell = cells.get(key) || {value: null, verdict: 'pass', pairs: []};
    if (pair[field] !== undefined) cell.value = cell.value === null ? pair[field] : worse(cell.value, pair[field]);
    if (kind(pair.verdict) === 'bad' || (kind(pair.verdict) === 'odd' && kind(cell.verdict) === 'good')) cell.verdict = pair.verdict;
    cell.pairs.push(pair);
    cells.set(key, cell);
  }
  const known = [...cells.values()].map(cell => cell.value).filter(value => value !== null);
  const low = Math.min(...known), high = Math.max(...known);
  const label = block => {
    const first = ends[block * each], last = ends[Math.min((block + 1) * each, ends.length) - 1];
    return first === last ? first : `${first} … ${last}`;
  };
  // All cells use the unit of the largest one.
  const unit = known.length > 0 ? text(high).split(' ')[1] : '', scale = high > 0 ? high / parseFloat(text(high)) : 1;
  const short = value => String(Number((value / scale).toPrecision(3)));
  const cellOf = (row, column) => {
    const cell = cells.get(row * columns + column);
    if (!cell) return h('td', {class: 'none'}, h('span', {class: 'unseen'}, 'no pair'));
    const share = cell.value === null || high === low ? 1 : (cell.value - low) / (high - low);
    const good = cell.verdict === 'pass' || cell.verdict === 'info';
    return h('td', {class: `heat ${kind(cell.verdict)}`, style: {'--heat': `${Math.round(10 + 60 * share)}%`},
      title: `${label(row)} → ${label(column)}: ${cell.value === null ? 'not measured' : text(cell.value)}, ${cell.verdict}${cell.pairs[0].message ? `: ${cell.pairs[0].message}` : ''}`},
    !good && `${sign(cell.verdict)} `, cell.value === null ? cell.verdict : short(cell.value));
  };
  return h('figure', {class: 'figure'}, scroller(`${name} of pairs`, h('table', {class: 'heatmap'},
    h('caption', {class: 'unseen'}, `${name}: rows send, columns receive`),
    h('thead', null, h('tr', null, h('th', {scope: 'col'}, 'from \\ to'), Array.from({length: columns}, (_, column) => h('th', {scope: 'col'}, label(column))))),
    h('tbody', null, Array.from({length: columns}, (_, row) => h('tr', null, h('th', {scope: 'row'}, label(row)),
      Array.from({length: columns}, (_, column) => cellOf(row, column))))))),
  h('figcaption', null, known.length > 0 ? `${unit}; from ${text(low)} to ${text(high)}, darker is more; ${more}. ` : 'Not measured. ', '✕ failed, ! works but is an outlier.',
    each > 1 && ` Each cell is the worst of up to ${each} × ${each} pairs.`));
}

function pairsOf(pairs, subject) {
  const map = h('div', null), names = Object.keys(FIGURES).filter(name => pairs.some(pair => pair[FIGURES[name].field] !== undefined));
  if (names.length === 0) names.push('bandwidth');
  const buttons = names.map(name => h('button', {type: 'button', class: 'chip', 'aria-pressed': 'false', onclick: () => show(name)}, name));
  const show = name => {
    map.replaceChildren(heatMap(pairs, name));
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', names[i] === name));
  };
  show(names[0]);
  const named = pairs.filter(pair => !['pass', 'info'].includes(pair.verdict));
  return [
    subject !== '' && h('h3', null, subject), h('p', {class: 'dim'}, `${counted(pairs.length, 'pair')}: ${tallyText(pairs)}`),
    h('div', {class: 'chips', role: 'group', 'aria-label': 'Figure'}, buttons), map,
    named.length > 0 && scroller('Pairs to examine', table(['pair', 'verdict', 'why', 'bandwidth', 'latency p50', 'latency p99'], named.slice(0, MOST_NAMED).map(pair => [
      `${pair.from} → ${pair.to}`, pill(pair.verdict), pair.message, ...Object.values(FIGURES).map(({field, text}) => pair[field] === undefined ? '–' : text(pair[field]))]), {class: 'data'})),
    named.length > MOST_NAMED && h('p', {class: 'caption'}, `results.json lists ${counted(named.length - MOST_NAMED, 'more pair')}.`),
  ];
}

function pairsSection(documents) {
  const pairs = documents.flatMap(document => document.pairs || []);
  if (pairs.length === 0) return null;
  const subjects = [...new Set(pairs.map(pair => pair.subject))];
  return section('pairs', 'Pairs', subjects.map(subject => pairsOf(pairs.filter(pair => pair.subject === subject), subject)));
}
