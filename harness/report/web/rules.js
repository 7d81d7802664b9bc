'use strict';
// The rules by group, with filter and search, and the failures by cause.

const GROUPS = /^[A-Z]+/;
const groupOf = rule => (GROUPS.exec(rule.id) || ['other'])[0];

/** A rule that unfolds to its evidence. */
const ruleRow = (rule, anchor) => unfolding({class: `rule ${kind(rule.verdict)}`, id: anchor + rule.id, 'data-verdict': rule.verdict},
  [pill(rule.verdict), h('span', {class: 'id'}, rule.id), h('span', {class: 'title'}, rule.title),
    h('span', {class: 'seconds'}, rule.start === undefined && rule.seconds === 0 ? '' : duration(rule.seconds))],
  () => h('div', {class: 'body'}, evidence(rule)));

function rulesSection(subjects) {
  const rows = [], groups = [];
  const lists = subjects.map(subject => {
    const {run, anchor, document} = subject;
    const parts = new Map();
    for (const rule of run.rules) parts.set(groupOf(rule), [...(parts.get(groupOf(rule)) || []), rule]);
    return h('div', {class: 'subject'},
      subjects.length > 1 && h('h3', {class: 'subject-name'}, subjectName(run), h('span', {class: 'dim'}, `NIC ${document.environment.nic}, ${document.environment.topology}`)),
      [...parts].map(([name, rules]) => {
        const members = rules.map(rule => {
          const row = {rule, element: ruleRow(rule, anchor), words: [rule.id, rule.title, rule.text, rule.message, rule.verdict, rule.path, rule.group].join('\n').toLowerCase()};
          rows.push(row);
          return row;
        });
        const element = h('div', {class: 'group'}, h('h3', null, h('span', {class: 'id'}, name), ' ', (rules.find(rule => rule.group) || {}).group || '',
          h('span', {class: 'dim'}, tallyText(rules))), members.map(row => row.element));
        groups.push({element, members});
        return element;
      }));
  });
  const wanted = new Set(), status = h('output', {'aria-live': 'polite', id: 'shown'});
  const search = h('input', {type: 'search', id: 'search', placeholder: 'Find in rules', 'aria-label': 'Find in rules', autocomplete: 'off', spellcheck: 'false'});
  const nothing = h('p', {class: 'empty', hidden: true}, 'No rule matches.');
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      row.hidden = (wanted.size > 0 && !wanted.has(row.rule.verdict)) || !words.every(word => row.words.includes(word));
      row.element.hidden = row.hidden;
      shown += row.hidden ? 0 : 1;
    }
    for (const group of groups) group.element.hidden = group.members.every(row => row.hidden);
    nothing.hidden = shown > 0;
    status.textContent = shown === rows.length ? counted(rows.length, 'rule') : `${shown} of ${counted(rows.length, 'rule')}`;
  };
  const chips = tally(rows.map(row => row.rule)).map(([verdict, count]) => h('button', {
    type: 'button', class: `chip ${kind(verdict)}`, 'aria-pressed': 'false', 'data-verdict': verdict, onclick: event => {
      if (!wanted.delete(verdict)) wanted.add(verdict);
      event.currentTarget.setAttribute('aria-pressed', wanted.has(verdict));
      filter();
    },
  }, h('span', {'aria-hidden': 'true'}, sign(verdict)), ` ${verdict} `, h('b', null, count)));
  search.addEventListener('input', filter);
  document.addEventListener('keydown', event => {
    if (event.key === '/' && !event.ctrlKey && !event.metaKey && !/INPUT|TEXTAREA/.test(event.target.tagName)) {
      event.preventDefault();
      search.focus();
    } else if (event.key === 'Escape' && event.target === search) {
      search.value = '';
      filter();
    }
  });
  filter();
  return section('rules', 'Rules',
    h('div', {class: 'filters', role: 'search'}, search, h('div', {class: 'chips', role: 'group', 'aria-label': 'Verdicts'}, chips), status), nothing, lists);
}

const MOST_CAUSES = 30;

/** One card for each cause: the evidence of the rule to begin with, links to the others. */
function failuresSection(subjects) {
  const causes = subjects.flatMap(subject => (subject.run.causes || []).map(cause => ({cause, subject})));
  if (causes.length === 0) return null;
  const cards = causes.slice(0, MOST_CAUSES).map(({cause, subject}, i) => {
    const rule = subject.run.rules.find(each => each.id === cause.start), others = cause.rules.filter(id => id !== cause.start);
    if (!rule) return null;
    const card = unfolding({class: `card ${kind(rule.verdict)}`}, [
      h('span', {class: 'card-head'}, pill(rule.verdict), h('a', {href: `#${subject.anchor}${rule.id}`, class: 'id'}, rule.id),
        subjects.length > 1 && h('span', {class: 'dim'}, `${subjectName(subject.run)}, NIC ${subject.document.environment.nic}`)),
      h('span', {class: 'card-title'}, others.length > 0 ? cause.text : rule.title)], () => h('div', {class: 'body'},
      evidence(rule),
      others.length > 0 && h('details', {class: 'block', open: others.length <= 12}, h('summary', null, `${counted(others.length, 'more rule')} with this cause`),
        h('p', {class: 'links'}, others.map(id => [h('a', {href: `#${subject.anchor}${id}`}, id), ' '])))));
    card.open = i === 0;
    return card;
  });
  return section('failures', 'What is broken', cards,
    causes.length > MOST_CAUSES && h('p', {class: 'caption'}, `${counted(causes.length - MOST_CAUSES, 'more cause')}: see the rules below.`));
}
