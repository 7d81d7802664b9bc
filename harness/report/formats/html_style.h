// Style sheet and script of the HTML page.
#pragma once

#include <string_view>

namespace plugfest::report {

inline constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --back: #fff; --front: #1c2024; --dim: #667078; --line: #dfe3e8; --box: #f5f7f9;
  --good: #18794e; --bad: #cd2b31; --odd: #946800; --calm: #5a6570; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --front: #e6e9ec; --dim: #98a2ab; --line: #2e343a;
  --box: #1d2226; --good: #4cc38a; --bad: #ff6369; --odd: #e2a93b; --calm: #98a2ab; } }
body { font: 15px/1.5 system-ui, sans-serif; background: var(--back); color: var(--front); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p, dl { margin: .3rem 0; } .dim, dt { color: var(--dim); }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.filters { display: flex; flex-wrap: wrap; gap: .4rem; position: sticky; top: 0; background: var(--back); padding: .6rem 0;
  border-bottom: 1px solid var(--line); }
.filters button, .filters input { font: inherit; color: inherit; background: var(--box); border: 1px solid var(--line);
  border-radius: 1rem; padding: .1rem .8rem; }
.filters button[aria-pressed=true] { background: var(--front); color: var(--back); }
.filters input { flex: 1; min-width: 10rem; }
details { border-bottom: 1px solid var(--line); } summary { display: flex; gap: .8rem; padding: .3rem 0; cursor: pointer; }
summary::before { content: "▸"; color: var(--dim); } details[open] > summary::before { content: "▾"; }
summary .verdict { width: 4.5rem; font-weight: 600; } summary .id { width: 3.8rem; font-family: monospace; }
summary .title { flex: 1; } summary .seconds { color: var(--dim); font-variant-numeric: tabular-nums; }
.pass { color: var(--good); } .fail, .crash, .timeout, .error, .missing { color: var(--bad); }
.warn, .waived { color: var(--odd); } .info, .skip, .na { color: var(--calm); }
.body { padding: .2rem 0 .8rem 6.6rem; } .clause { border-left: 3px solid var(--line); padding-left: .8rem; margin: .4rem 0; }
pre { background: var(--box); padding: .6rem .8rem; border-radius: .4rem; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: 13px; margin: .4rem 0; }
pre.again { user-select: all; } h3 { font-size: .9rem; margin: .8rem 0 0; }
.matrix { overflow-x: auto; margin: .8rem 0; } table { border-collapse: collapse; font-size: .9rem; }
th, td { border: 1px solid var(--line); padding: .15rem .6rem; text-align: left; } td a { color: inherit; }
[hidden] { display: none !important; }
@media (max-width: 40rem) { .body { padding-left: 0; } }
)css";

inline constexpr std::string_view kScript = R"js(
const buttons = [...document.querySelectorAll('.filters button')];
const search = document.querySelector('.filters input');
const rules = [...document.querySelectorAll('details.rule')];
function filter() {
  const wanted = buttons.filter(b => b.getAttribute('aria-pressed') === 'true').map(b => b.dataset.verdict);
  const words = search.value.toLowerCase();
  for (const rule of rules) {
    rule.hidden = (wanted.length > 0 && !wanted.includes(rule.dataset.verdict)) ||
                  !rule.textContent.toLowerCase().includes(words);
  }
}
for (const button of buttons) {
  button.onclick = () => {
    button.setAttribute('aria-pressed', button.getAttribute('aria-pressed') !== 'true');
    filter();
  };
}
search.oninput = filter;
function reveal() {
  const rule = document.getElementById(location.hash.slice(1));
  if (rule) { rule.open = true; rule.scrollIntoView(); }
}
window.onhashchange = reveal;
reveal();
)js";

}  // namespace plugfest::report
