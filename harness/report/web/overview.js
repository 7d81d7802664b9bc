'use strict';
// The head of the page: verdict line, environment, topology, matrix of runs, time line of a run with its faults.

/** "Mesh v12", "Mesh collnet v12". */
const subjectName = run => `${run.plugin.name} ${run.interface === 'net' ? '' : `${run.interface} `}v${run.api}`;

const certificationsOf = documents => documents.map(document => document.certification).filter(Boolean);

/** The verdict of certifications, which takes precedence over their rules' verdict. `parts`: what is wrong with rules. */
function certificationConclusion(certifications, parts, rules) {
  const code = Math.max(...certifications.map(each => each.exit_code));
  const reasons = [...new Set([...certifications.flatMap(each => each.reasons), ...parts])];
  if (code !== 0) {
    if (code !== 1) reasons.unshift('The certification is not complete');
    return {kind: 'bad', sign: '✕', word: 'The cluster did not pass', parts: reasons};
  }
  const sum = field => certifications.reduce((all, each) => all + each[field], 0);
  const tested = rules.length > 0 ? [`${counted(rules.length, 'rule')} tested, none broken`] : [];
  return {kind: 'good', sign: '✓', word: 'The cluster passed',
    parts: [`${counted(sum('hosts'), 'host')}, ${counted(sum('nics'), 'NIC')}, ${counted(sum('pairs'), 'pair')}`, ...tested]};
}

/** What certify found, most serious first: lost hosts, suspects, differences, loads. */
function certificationSection(documents) {
  const certifications = certificationsOf(documents);
  if (certifications.length === 0) return null;
  const listed = (title, heads, rows) => rows.length > 0 && [h('h3', null, title), scroller(title, table(heads, rows, {class: 'data'}))];
  return section('certification', 'Certification', certifications.map(each => {
    const lost = each.suspects.filter(suspect => suspect.kind === 'host'), others = each.suspects.filter(suspect => suspect.kind !== 'host');
    const measured = value => value === undefined ? '–' : rate(value);
    return [
      h('p', null, `${counted(each.hosts, 'host')}, ${counted(each.nics, 'NIC')}, ${counted(each.pairs, 'pair')} of NICs.`,
        each.suspects.length + each.differences.length === 0 && ' No host was lost, no part is broken or slow, and the hosts do not differ.'),
      listed('Lost hosts', ['host', 'why'], lost.map(suspect => [suspect.subject, suspect.why])),
      listed('Suspects', ['verdict', 'part', 'why'], others.map(suspect => [pill(suspect.kind), suspect.subject, suspect.why])),
      listed('Differences between hosts', ['fact and its values'], each.differences.map(difference => [difference])),
      listed('Loads', ['load', 'seconds', 'slowest NIC', 'fastest NIC', 'result'], each.loads.map(load =>
        [load.load, load.seconds.toFixed(1), measured(load.lowest_bits_per_second), measured(load.highest_bits_per_second), load.broken || 'no deviation'])),
      listed('Soaks', ['pair', 'minutes', 'rounds', 'result'], (each.soaks || []).map(soak =>
        [soak.pair, (soak.seconds / 60).toFixed(1), soak.rounds, soak.broken || soak.leaks.join('; ') || 'nothing grows'])),
    ];
  }));
}

/** The verdict of all documents in one sentence, its kind, and what to do next. */
function conclusion(subjects, documents) {
  const rules = subjects.flatMap(subject => subject.run.rules);
  const bad = rules.filter(rule => ['fail', 'crash', 'timeout'].includes(rule.verdict));
  const untested = rules.filter(rule => ['error', 'missing'].includes(rule.verdict));
  const pairs = documents.flatMap(document => document.pairs || []);
  const badPairs = pairs.filter(isBad);
  const tested = rules.length > 0 ? counted(rules.length, 'rule') : counted(pairs.length, 'pair');
  const parts = [];
  const first = subjects.flatMap(subject => subject.run.causes || [])[0];
  if (bad.length > 0) parts.push(`${bad.length} of ${tested} broken${first ? `, start with ${first.start}` : ''}`);
  const certifications = certificationsOf(documents);
  if (certifications.length === 0 && badPairs.length > 0) parts.push(`${badPairs.length} of ${counted(pairs.length, 'pair')} failed`);
  if (untested.length > 0) parts.push(`${counted(untested.length, 'rule')} not tested`);
  if (documents.some(document => document.interrupted)) parts.push('stopped before the end');
  if (certifications.length > 0) return certificationConclusion(certifications, parts, rules);
  const warned = rules.filter(rule => rule.verdict === 'warn').length;
  if (bad.length > 0 || badPairs.length > 0) return {kind: 'bad', sign: '✕', word: 'Fails', parts};
  if (parts.length > 0) return {kind: 'odd', sign: '!', word: 'Not tested', parts};
  if (rules.length + pairs.length === 0) return {kind: 'calm', sign: '–', word: 'Measurements', parts: ['nothing was tested']};
  parts.push(`${tested} tested, none broken${warned > 0 ? `, ${counted(warned, 'warning')}` : ''}`);
  return {kind: 'good', sign: '✓', word: 'Passes', parts};
}

function verdictBar(rules) {
  const counts = tally(rules);
  return [
    h('div', {class: 'bar', 'aria-hidden': 'true'},
      counts.map(([verdict, count]) => h('span', {class: kind(verdict), style: {'flex-grow': count}}))),
    h('ul', {class: 'legend'}, counts.map(([verdict, count]) => h('li', null, pill(verdict), ' ', h('b', null, count)))),
  ];
}

function head(subjects, documents) {
  const end = conclusion(subjects, documents);
  const names = [...new Set(subjects.map(subject => subjectName(subject.run)))];
  const certified = certificationsOf(documents)[0];
  const title = certified ? `Certification of ${certified.plugin || 'a plugin that no host loaded'}` : names.length === 0 ? 'plugfest' : names.length <= 3 ? names.join(', ') : `${names.length} subjects`;
  return h('header', {class: 'head'},
    h('p', {class: 'over'}, `plugfest ${documents[0] ? documents[0].tool.version : ''} report`),
    h('h1', null, title),
    h('p', {class: `conclusion ${end.kind}`, id: 'conclusion'},
      h('span', {class: 'mark', 'aria-hidden': 'true'}, end.sign), h('span', null, h('b', null, `${end.word}. `), end.parts.join('; '), '.')),
    subjects.length > 0 && verdictBar(subjects.flatMap(subject => subject.run.rules)));
}

function fields(entries) {
  return h('dl', {class: 'fields'}, entries.filter(([, value]) => value !== '' && value !== undefined && value !== null)
    .map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

function environment(document, runs) {
  const about = document.environment;
  return fields([
    ['topology', about.topology], ['NIC', about.nic], ['hosts', about.layout], ['kernel', about.kernel], ['processor', about.cpu],
    ['privileges', about.privileges],
    ['plugfest', document.tool.version + (document.tool.commit ? ` (${document.tool.commit})` : '')],
    ...runs.flatMap(run => [
      ['plugin', run.plugin.path], ['versions', run.plugin.versions.map(version => `v${version}`).join(' ')],
      [runs.length > 1 ? subjectName(run) : 'run',
        `${run.seconds.toFixed(1)} s, seed ${run.seed}, idle ranks used ${(run.idle_cpu_share * 100).toFixed(2)} % CPU`],
      ['devices', (run.devices || []).map(device => `${device.interface} = ${device.device}`).join(', ')],
      ['variables', (run.environment || []).join(' ')],
    ]),
  ]);
}


const MOST_NODES = 200;
const nodeOf = name => name.slice(0, name.lastIndexOf('.'));
const interfaceOf = name => name.slice(name.lastIndexOf('.') + 1);

/** Places of the nodes in a picture of `width` × `height`: tiers as rows, or hosts alone as a circle. */
function places(fabric) {
  const tiers = new Map();
  for (const node of fabric.nodes) tiers.set(node.tier, [...(tiers.get(node.tier) || []), node.name]);
  const rows = [...tiers.keys()].sort((a, b) => b - a).map(tier => tiers.get(tier));
  const at = new Map();
  if (rows.length === 1 && rows[0].length > 2) {
    const radius = Math.max(130, rows[0].length * 22), center = radius + 50;
    rows[0].forEach((name, i) => {
      const angle = 2 * Math.PI * i / rows[0].length - Math.PI / 2;
      at.set(name, [center + 1.25 * radius * Math.cos(angle) + radius * 0.25, center + radius * Math.sin(angle)]);
    });
    const ys = [...at.values()].map(([, y]) => y);
    return {at, width: 2.5 * radius + 100, height: Math.max(...ys) + 40};
  }
  const widest = Math.max(...rows.map(row => row.length)), width = Math.max(widest * (rows.length === 1 ? 260 : 76), 320);
  rows.forEach((row, y) => row.forEach((name, i) => at.set(name, [(i + 0.5) * width / row.length, 40 + y * 110])));
  return {at, width, height: 80 + (rows.length - 1) * 110};
}

/** A point of the line from `from` to `to`, `distance` from its start. */
function towards(from, to, distance) {
  const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
  return [0, 1].map(axis => from[axis] + (to[axis] - from[axis]) * distance / length);
}

function topology(fabric, name) {
  const hosts = fabric.nodes.filter(node => node.tier === 0).length;
  const summary = `${name}: ${counted(hosts, 'host')}, ${counted(fabric.nodes.length - hosts, 'switch')}, ${counted(fabric.links.length, 'link')}`;
  if (fabric.nodes.length > MOST_NODES) return h('p', {class: 'empty'}, `${summary}: too many nodes to draw`);
  const {at, width, height} = places(fabric), roomy = fabric.links.length <= 12;
  const parallel = new Map();
  const drawing = svg('svg', {class: 'topology', viewBox: `0 0 ${Math.round(width)} ${Math.round(height)}`, role: 'img', 'aria-label': summary});
  drawing.style.setProperty('min-width', `${Math.min(width, fabric.nodes.length * 24)}px`);
  drawing.style.setProperty('max-width', `${Math.round(width * 1.3)}px`);
  const texts = [];
  for (const link of fabric.links) {
    const from = at.get(nodeOf(link.from)), to = at.get(nodeOf(link.to));
    if (!from || !to) continue;
    const key = [nodeOf(link.from), nodeOf(link.to)].sort().join(' '), index = parallel.get(key) || 0;
    parallel.set(key, index + 1);
    const bend = index === 0 ? 0 : Math.ceil(index / 2) * 26 * (index % 2 ? 1 : -1);
    const across = towards([0, 0], [from[1] - to[1], to[0] - from[0]], bend);
    const middle = [(from[0] + to[0]) / 2 + across[0], (from[1] + to[1]) / 2 + across[1]];
    const label = [link.subnet, link.rate > 0 && rate(link.rate), link.delay > 0 && duration(link.delay)].filter(Boolean);
    drawing.append(svg('path', {class: 'link', d: `M${from} Q${[0, 1].map(i => middle[i] + across[i])} ${to}`},
      svg('title', null, `${link.from} – ${link.to}: ${label.join(', ')}`)));
    for (const [end, name] of [[from, link.from], [to, link.to]]) {
      const nic = towards(end, middle, 46);
      drawing.append(svg('circle', {class: 'nic', cx: nic[0], cy: nic[1], r: roomy ? 4 : 2}));
      const flat = Math.abs(middle[1] - end[1]) < 12;  // the name is beside a steep link, and above a flat one
      if (roomy) texts.push([interfaceOf(name), nic[0] + (flat ? 0 : 8), nic[1] + (flat ? -9 : 4), 'name', flat ? 'middle' : 'start']);
    }
    if (roomy) label.forEach((line, i) => texts.push([line, middle[0], middle[1] + 4 + i * 14 - (label.length - 1) * 7, 'subnet', 'middle']));
  }
  for (const node of fabric.nodes) {
    const [x, y] = at.get(node.name), half = Math.max(20, node.name.length * 4.2 + 10);
    drawing.append(node.tier === 0
      ? svg('rect', {class: 'host', x: x - half, y: y - 15, width: 2 * half, height: 30, rx: 5})
      : svg('ellipse', {class: 'switch', cx: x, cy: y, rx: half + 4, ry: 16}),
    svg('text', {x, y: y + 5, 'text-anchor': 'middle', class: 'node'}, node.name));
  }
  for (const [text, x, y, name, anchor] of texts) drawing.append(svg('text', {x, y, class: name, 'text-anchor': anchor}, text));
  return [
    h('figure', {class: 'figure'}, scroller(`Topology ${name}`, drawing),
      h('figcaption', null, `${summary}. Boxes are hosts, ${fabric.nodes.length > hosts ? 'ellipses are switches, ' : ''}dots are NICs and ports.`)),
  ];
}


/** Rules and runs; rules that passed everywhere are hidden at first. */
function matrix(subjects) {
  const ids = [...new Set(subjects.flatMap(subject => subject.run.rules.map(rule => rule.id)))];
  const byRun = subjects.map(subject => new Map(subject.run.rules.map(rule => [rule.id, rule])));
  const rows = ids.map(id => ({id, rules: byRun.map(rules => rules.get(id))}));
  const dull = rows.filter(row => row.rules.every(rule => rule && rule.verdict === 'pass'));
  const body = h('tbody', null, rows.map(row => h('tr', {hidden: dull.includes(row)},
    h('th', {scope: 'row'}, row.id, h('span', {class: 'dim'}, (row.rules.find(rule => rule) || {}).title)),
    row.rules.map((rule, i) => h('td', null, rule
      ? h('a', {href: `#${subjects[i].anchor}${rule.id}`, class: 'plain'}, pill(rule.verdict))
      : h('span', {class: 'dim'}, 'not run'))))));
  const toggle = h('input', {type: 'checkbox', onchange: event => {
    rows.forEach((row, i) => { body.rows[i].hidden = dull.includes(row) && !event.target.checked; });
  }});
  return section('matrix', 'Runs',
    scroller('Rules and runs', h('table', {class: 'matrix'},
      h('thead', null, h('tr', null, h('th', {scope: 'col'}, 'rule'), subjects.map(({run, document}) => h('th', {scope: 'col'},
        h('b', null, subjectName(run)), h('span', null, `NIC ${document.environment.nic}`), h('span', null, document.environment.topology))))),
      body,
      h('tfoot', null, h('tr', null, h('th', {scope: 'row'}, 'all'), subjects.map(({run}) => h('td', {class: 'dim'}, tallyText(run.rules))))))),
    h('label', {class: 'check'}, toggle, ` show ${counted(dull.length, 'rule')} that passed in all runs`));
}


const MOST_SPANS = 3000;

/** Rules by path, with the times of faults as bands. */
function runTimeline({run, anchor}) {
  const timed = run.rules.filter(rule => rule.start !== undefined).slice(0, MOST_SPANS), faults = run.faults || [];
  const end = Math.max(...timed.map(rule => rule.start + rule.seconds), ...faults.map(fault => fault.end), 1e-3);
  const left = seconds => `${100 * Math.min(seconds, end) / end}%`;
  const width = (from, to) => `${100 * Math.max(Math.min(to, end) - from, 0) / end}%`;
  const lanes = [...new Set(timed.map(rule => rule.path))];
  const bands = () => faults.map(fault => h('span', {class: 'band', style: {left: left(fault.start), width: width(fault.start, fault.end)}}));
  const lane = (name, items) => h('div', {class: 'lane'}, h('span', {class: 'lane-name'}, name), h('div', {class: 'track'}, items));
  return h('div', {class: 'timeline', 'aria-hidden': 'true'},
    faults.length > 0 && lane('faults', faults.map(fault => h('span', {class: 'fault', title: `${fault.fault}, ${duration(fault.start)} to ${duration(fault.end)}`,
      style: {left: left(fault.start), width: width(fault.start, fault.end)}}, fault.fault))),
    lanes.map(path => lane(path.replace(' ', ' – '), [bands(), timed.filter(rule => rule.path === path).map(rule =>
      h('a', {class: `span ${kind(rule.verdict)}`, href: `#${anchor}${rule.id}`, tabindex: '-1', title: `${rule.id} ${rule.title}: ${rule.verdict}, ${duration(rule.seconds)}`,
        style: {left: left(rule.start), width: width(rule.start, rule.start + rule.seconds)}}, isBad(rule) ? `✕ ${rule.id}` : ''))])),
    lane('', [0, 0.25, 0.5, 0.75, 1].map(share => h('span', {class: 'tick', style: {left: `${share * 100}%`}}, duration(share * end)))));
}

function timeSection(subjects) {
  const shown = subjects.filter(({run}) => run.rules.some(rule => rule.start !== undefined));
  if (shown.length === 0) return null;
  return section('time', 'Time line', shown.map(subject => [
    shown.length > 1 && h('h3', null, subjectName(subject.run)), runTimeline(subject),
    (subject.run.faults || []).length > 0 && h('details', null, h('summary', null, counted(subject.run.faults.length, 'fault')),
      scroller('Faults', table(['from', 'to', 'fault', 'defined in', 'during'],
        subject.run.faults.map(fault => [duration(fault.start), duration(fault.end), fault.fault, fault.source, fault.rule || '']), {class: 'data'}))),
    ['missed_faults', 'ineffective_faults'].map(list => (subject.run[list] || []).map(fault => h('p', {class: 'note odd'},
      `! ${fault.fault} (${fault.source}) ${list === 'missed_faults' ? 'never started' : 'had no effect on a rule'}: ${fault.reason}`))),
  ]), h('p', {class: 'caption'}, 'One row per path; each bar is a rule. Broken rules have their name.',
    shown.some(({run}) => (run.faults || []).length > 0) && ' Hatched: a fault was active.'));
}
