'use strict';
// Builds the page from its data.

(() => {
  const {documents, notes} = JSON.parse(document.getElementById('data').textContent);
  const versions = new Map();
  const subjects = documents.flatMap(each => each.runs.map(run => {
    const count = (versions.get(run.api) || 0) + 1;
    versions.set(run.api, count);
    return {run, document: each, anchor: `${count === 1 ? '' : `${count}-`}v${run.api}-`};
  }));

  // Pictures of larger topologies use the whole width, below the text.
  const MOST_BESIDE = 8, drawn = new Set();
  const overview = section('overview', 'Environment', documents.map((each, i) => {
    const key = each.fabric && JSON.stringify(each.fabric), draw = key && !drawn.has(key);
    drawn.add(key);
    return [
      documents.length > 1 && h('h3', null, `Result ${i + 1}: ${each.runs.map(subjectName).join(', ') || 'measurements'}`),
      h('div', {class: draw && each.fabric.nodes.length <= MOST_BESIDE ? 'columns' : ''}, environment(each, each.runs), draw && h('div', null, topology(each.fabric, each.environment.topology))),
      (each.flaky || []).map(flake => h('p', {class: 'note odd'}, `! flaky: ${flake.id} v${flake.api}: ${Object.entries(flake.verdicts).map(([verdict, count]) => `${count} ${verdict}`).join(', ')}`)),
    ];
  }));

  const parts = [
    certificationSection(documents), failuresSection(subjects), subjects.length > 1 && matrix(subjects), pairsSection(documents), curvesSection(documents),
    subjects.length > 0 && rulesSection(subjects), timeSection(subjects), overview,
  ].filter(Boolean);
  const navigation = h('nav', {'aria-label': 'Parts of the page'}, parts.map(part => h('a', {href: `#${part.id}`}, part.querySelector('h2').textContent)));
  document.body.append(
    h('a', {class: 'skip', href: '#main'}, 'To the content'), head(subjects, documents), navigation,
    h('main', {id: 'main'}, notes.map(note => h('p', {class: 'note odd', role: 'note'}, `! ${note}`)), parts),
    h('footer', null, 'Made by plugfest. Charts: uPlot, © Leon Sorokin, MIT license.'));

  /** Opens the rule that the address names. */
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.tagName === 'DETAILS') target.open = true;
    target.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  reveal();
  document.body.dataset.ready = 'yes';
})();
