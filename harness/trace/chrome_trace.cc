#include "harness/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/wire/json.h"

namespace plugfest::trace {
namespace {

// "isend" of "isend(100 bytes, tag 7)".
std::string function_of(const std::string& call) { return call.substr(0, call.find('(')); }

}  // namespace

void ChromeTrace::on_call(const std::string& rank, const control::CallRecord& call) {
  add(rank, call.thread, {call.call, call.result, call.start_ns, call.end_ns, call.count});
}

void ChromeTrace::add_span(const std::string& group, const std::string& track, const std::string& name,
                           const std::string& result, std::int64_t start_ns, std::int64_t end_ns) {
  add(group, track, {name, result, start_ns, end_ns});
}

void ChromeTrace::add_bar(const std::string& group, const std::string& track, Bar bar) {
  const std::lock_guard lock(mutex_);
  tracks_[{group, track}].push_back(std::move(bar));
}

void ChromeTrace::add(const std::string& group, const std::string& track, Bar bar) {
  const std::lock_guard lock(mutex_);
  std::vector<Bar>& bars = tracks_[{group, track}];
  if (!bars.empty() && bars.back().name == bar.name && bars.back().result == bar.result) {
    bars.back().end_ns = bar.end_ns;
    bars.back().count += bar.count;
    return;
  }
  bars.push_back(std::move(bar));
}

std::string ChromeTrace::json(const std::string& more) const {
  const std::lock_guard lock(mutex_);
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const auto& [key, bars] : tracks_)
    for (const Bar& bar : bars) origin = std::min(origin, bar.start_ns);
  std::string events;
  const auto add = [&](const std::string& event) { events += (events.empty() ? "\n" : ",\n") + event; };
  std::string group;
  int process = 0;
  int thread = 0;
  for (const auto& [key, bars] : tracks_) {
    if (process == 0 || key.first != group) {
      group = key.first;
      ++process;
      add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process,
                      wire::json_string(group)));
    }
    ++thread;
    add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", process, thread,
                    wire::json_string(key.second)));
    for (const Bar& bar : bars) {
      const bool is_call = bar.members.empty();
      std::string arguments = bar.members;
      if (is_call)
        arguments = fmt::format(R"("call":{},"result":{})", wire::json_string(bar.name), wire::json_string(bar.result));
      if (bar.count > 1) arguments += fmt::format(R"(,"calls":{})", bar.count);
      add(fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                      wire::json_string(is_call ? function_of(bar.name) : bar.name), process, thread,
                      static_cast<double>(bar.start_ns - origin) / 1e3,
                      static_cast<double>(bar.end_ns - bar.start_ns) / 1e3, arguments));
      const auto add_flow = [&](const char* phase, std::uint64_t id, std::int64_t time_ns) {
        if (id == 0) return;
        add(fmt::format(
            R"({{"ph":"{}","bp":"e","cat":"transfer","name":"transfer","id":{},"pid":{},"tid":{},"ts":{:.3f}}})", phase,
            id, process, thread, static_cast<double>(time_ns - origin) / 1e3));
      };
      add_flow("s", bar.flow_out, bar.start_ns);
      add_flow("f", bar.flow_in, bar.end_ns);
    }
  }
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + events + "\n]" + more + "}\n";
}

}  // namespace plugfest::trace
