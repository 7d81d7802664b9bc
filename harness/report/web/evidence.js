'use strict';
// The evidence of a broken rule: time line of calls, ladder of packets, logs, output, the command that repeats it.

/** Text in a box that can be copied. */
function command(text) {
  const box = h('code', {tabindex: '0'}, text);
  const button = h('button', {type: 'button', onclick: async () => {
    getSelection().selectAllChildren(box);
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Selected';
    }
  }}, 'Copy');
  return h('div', {class: 'command'}, box, button);
}

/** A time axis for events that are microseconds and seconds apart: long gaps are drawn shorter, in the order of events. */
function compressedAxis(times) {
  const marks = [...new Set(times)].sort((a, b) => a - b);
  const places = [0];
  for (let i = 1; i < marks.length; ++i) places.push(places[i - 1] + Math.log1p((marks[i] - marks[i - 1]) / 2e-5) + 0.02);
  const whole = places[places.length - 1] || 1;
  const at = new Map(marks.map((mark, i) => [mark, places[i] / whole]));
  return {marks, at: time => at.get(time)};
}

/** How a call ended: it hung or crashed, it is to be repeated, or it is done. */
function callKind(call) {
  if (/did not return|ended the process|SIG[A-Z]+|Error/.test(call.result)) return 'bad';
  return /not done|no request|no comm|not yet/.test(call.result) ? 'poll' : 'done';
}

// A bar below this fraction of the width has no room for text.
const NARROW = 0.04;

function calls(rule) {
  const lanes = [];
  for (const rank of rule.ranks) {
    for (const thread of new Set((rank.calls || []).map(call => call.thread))) {
      lanes.push({name: rank.name, thread, calls: rank.calls.filter(call => call.thread === thread)});
    }
  }
  if (lanes.length === 0) return null;
  const all = lanes.flatMap(lane => lane.calls.map(call => ({...call, rank: lane.name}))).sort((a, b) => a.start - b.start);
  const axis = compressedAxis(all.flatMap(call => [call.start, call.end]));
  const percent = share => `${(100 * share).toFixed(3)}%`;
  const track = lane => lane.calls.map(call => h('span', {
    class: `call ${callKind(call)}`, title: `${duration(call.start)}: ${call.call} → ${call.result}${call.count > 1 ? ` (×${call.count})` : ''}, ${duration(call.end - call.start)}`,
    style: {left: percent(axis.at(call.start)), width: percent(axis.at(call.end) - axis.at(call.start))},
  }, axis.at(call.end) - axis.at(call.start) > NARROW && `${callKind(call) === 'bad' ? '✕ ' : ''}${call.call.split('(')[0]}${call.count > 1 ? ` ×${call.count}` : ''}`));
  const ticks = [];
  for (const mark of axis.marks) {
    if (ticks.length === 0 || axis.at(mark) - axis.at(ticks[ticks.length - 1]) > 0.17) ticks.push(mark);
  }
  return [
    h('h4', null, 'Calls per rank'),
    h('div', {class: 'timeline', 'aria-hidden': 'true'},
      lanes.map(lane => h('div', {class: 'lane'}, h('span', {class: 'lane-name'}, lane.name, h('small', null, lane.thread)), h('div', {class: 'track'}, track(lane)))),
      h('div', {class: 'lane'}, h('span', {class: 'lane-name'}), h('div', {class: 'track'},
        ticks.map(tick => h('span', {class: 'tick', style: {left: percent(axis.at(tick))}}, duration(tick)))))),
    h('p', {class: 'caption'}, 'The axis is compressed: long waits are drawn shorter. ✕: the call failed or did not return. Pale: NCCL makes the call again.'),
    unfolding(null, `${counted(all.length, 'call')} as a table`, () => scroller('Calls', table(['time', 'rank', 'thread', 'call', 'result', 'took'],
      all.map(call => [duration(call.start), call.rank, call.thread, call.call + (call.count > 1 ? ` ×${call.count}` : ''), call.result, duration(call.end - call.start)]), {class: 'data'}))),
  ];
}

/** Packets between interfaces, one row each, time downwards. */
function ladder(capture) {
  const ends = [...new Set(capture.packets.flatMap(packet => [packet.from, packet.to]))];
  const marked = capture.packets.filter(packet => packet.mark).length;
  const row = packet => {
    const from = ends.indexOf(packet.from), to = ends.indexOf(packet.to), low = Math.min(from, to), high = Math.max(from, to);
    return h('li', {class: packet.mark ? 'packet marked' : 'packet'},
      h('span', {class: 'when'}, duration(packet.time)),
      h('span', {class: 'lanes', style: {'--columns': ends.length}},
        ends.map((_, i) => h('span', {class: 'life', style: {'grid-column': i + 1}})),
        h('span', {class: from <= to ? 'arrow right' : 'arrow left',
          style: {'grid-column': `${low + 1} / ${high + 2}`, '--inset': `${50 / (high - low + 1)}%`}},
        h('span', {class: 'what'}, packet.mark && h('b', null, `! ${packet.mark}: `),
          `${packet.what} PSN ${packet.psn}${packet.bytes > 0 ? `, ${bytes(packet.bytes)}` : ''}`,
          h('span', {class: 'unseen'}, ` from ${packet.from} to ${packet.to}, queue pair ${packet.queue_pair}`)))));
  };
  return [
    h('h4', null, 'Packets'),
    h('p', {class: 'caption'}, `${counted(capture.packets.length, 'packet')}, ${marked} marked`,
      capture.left_out > 0 && `; ${counted(capture.left_out, 'earlier packet')} not shown here`, '. Capture: ', h('code', null, capture.file)),
    scroller('Packets', h('div', {class: 'ladder'},
      h('div', {class: 'ends', 'aria-hidden': 'true', style: {'--columns': ends.length}}, ends.map(end => h('span', null, end))),
      h('ol', null, capture.packets.map(row)))),
  ];
}

const paragraphs = {M: 'NCCL misbehaves if it is broken', S: 'should hold; a warning, with --strict a failure', I: 'for information'};

/** A part of the evidence that is long: closed at first unless it is short. */
function block(title, text) {
  const lines = text.split('\n').length;
  return h('details', {class: 'block', open: lines <= 12}, h('summary', null, title, h('span', {class: 'dim'}, ` ${counted(lines, 'line')}`)), h('pre', {tabindex: '0'}, text));
}

/** All that is known of a rule's result. */
function evidence(rule) {
  return [
    rule.message && h('pre', {class: `message ${kind(rule.verdict)}`, tabindex: '0'}, rule.message),
    rule.known && h('p', {class: 'note odd'}, `! known finding: ${rule.known}`),
    rule.text && h('div', {class: 'clause'}, h('p', null, rule.text), h('p', {class: 'dim'}, `[${rule.level}] ${paragraphs[rule.level] || ''}. Source: ${rule.source}`)),
    (rule.faults || []).map(fault => h('p', {class: 'note odd'}, `! fault from ${duration(fault.start)} to ${duration(fault.end)}: ${fault.fault} (${fault.source})`)),
    Object.entries(rule.nics || {}).map(([nic, counters]) => h('p', {class: 'note'}, `NIC ${nic}: `,
      Object.entries(counters).map(([name, count]) => `${name.replaceAll('_', ' ')} ${count}`).join(', '))),
    rule.ranks && calls(rule),
    rule.capture && ladder(rule.capture),
    (rule.ranks || []).map(rank => [
      !(rank.calls || []).length && rank.last_calls.length > 0 && block(`rank ${rank.name}, last calls`, rank.last_calls.join('\n')),
      rank.log.length > 0 && block(`rank ${rank.name}, the plugin’s log`, rank.log.join('\n')),
      rank.output !== '' && block(`rank ${rank.name}, output`, rank.output),
    ]),
    rule.rerun && [h('h4', null, 'Run it again'), command(rule.rerun)],
    h('p', {class: 'dim'}, rule.path ? `Ran on ${rule.path.replaceAll(' ', ', ')} for ${duration(rule.seconds)}.` : 'Did not run.'),
  ];
}
