'use strict';
// Creates elements. Text from results never becomes markup: it is set as text or as the value of an attribute.

/** Appends children: nodes, text, arrays of them; null and false are skipped. */
function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
  return parent;
}

/** Sets attributes. `style` is an object of CSS properties, `on…` a listener; null and false are skipped. */
function decorate(element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'style') {
      for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
    } else if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  return element;
}

/** h('p', {class: 'dim'}, 'text', element): an HTML element. */
function h(tag, attributes, ...children) {
  return append(decorate(document.createElement(tag), attributes), children);
}

/** An SVG element. */
function svg(tag, attributes, ...children) {
  return append(decorate(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes), children);
}

const counted = (count, noun) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : noun.endsWith('ch') ? 'es' : 's'}`;

/** 0.0000123 as "12.3 µs". */
function duration(seconds) {
  const size = Math.abs(seconds);
  const [factor, unit] = size >= 1 || size === 0 ? [1, 's'] : size >= 1e-3 ? [1e3, 'ms'] : [1e6, 'µs'];
  const value = seconds * factor;
  return `${Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3))} ${unit}`;
}

/** 4096 as "4 KiB". */
function bytes(size) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (size >= 1024 && unit < 3) {
    size /= 1024;
    ++unit;
  }
  return `${Number(size.toFixed(1))} ${units[unit]}`;
}

/** 10000000000 as "10 Gbit/s". */
function rate(bitsPerSecond) {
  const [divisor, unit] = bitsPerSecond >= 1e9 ? [1e9, 'G'] : bitsPerSecond >= 1e6 ? [1e6, 'M'] : [1e3, 'k'];
  return `${Number((bitsPerSecond / divisor).toPrecision(3))} ${unit}bit/s`;
}

// The kinds of verdicts, each with a sign in addition to the color.
const VERDICTS = {
  'pass': ['good', '✓'], 'fail': ['bad', '✕'], 'crash': ['bad', '✕'], 'timeout': ['bad', '✕'], 'error': ['bad', '✕'],
  'missing': ['bad', '✕'], 'broken': ['bad', '✕'], 'leaks': ['bad', '✕'], 'slow': ['odd', '!'], 'warn': ['odd', '!'], 'waived': ['odd', '!'], 'info': ['calm', 'i'], 'skip': ['calm', '–'],
  'n/a': ['calm', '–'],
};
const kind = verdict => (VERDICTS[verdict] || ['calm', '?'])[0];
const sign = verdict => (VERDICTS[verdict] || ['calm', '?'])[1];
const isBad = rule => kind(rule.verdict) === 'bad';

/** "✕ fail" in a pill. */
const pill = verdict => h('span', {class: `pill ${kind(verdict)}`}, h('span', {'aria-hidden': 'true'}, sign(verdict)), ' ', verdict);

/** The number of each verdict among `rules`, in the order of VERDICTS: [["pass", 3], …]. */
function tally(rules) {
  const counts = new Map(Object.keys(VERDICTS).map(verdict => [verdict, 0]));
  for (const rule of rules) counts.set(rule.verdict, (counts.get(rule.verdict) || 0) + 1);
  return [...counts].filter(([, count]) => count > 0);
}

const tallyText = rules => tally(rules).map(([verdict, count]) => `${count} ${verdict}`).join(' · ');

/** A part of the page with a heading, which the navigation lists. */
function section(id, title, ...children) {
  return h('section', {id, 'aria-labelledby': `${id}-title`}, h('h2', {id: `${id}-title`}, title), children);
}

/** A part whose content is made when it is opened first, so that pages with many records stay quick. */
function unfolding(attributes, summary, content) {
  const element = h('details', attributes, h('summary', null, summary));
  element.addEventListener('toggle', () => {
    if (element.open && element.childElementCount === 1) append(element, [content()]);
  });
  return element;
}

/** A region that scrolls sideways, by keyboard too. */
const scroller = (label, ...children) => h('div', {class: 'scroller', tabindex: '0', role: 'region', 'aria-label': label}, children);

/** A table from rows of cells; cells are nodes or text. */
function table(heads, rows, attributes) {
  return h('table', attributes,
    h('thead', null, h('tr', null, heads.map(head => h('th', {scope: 'col'}, head)))),
    h('tbody', null, rows.map(row => h('tr', null, row.map(cell => h('td', null, cell))))));
}
