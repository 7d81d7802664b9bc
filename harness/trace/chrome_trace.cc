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
  add(group, track, {name, result, start_ns, end_ns, 1});
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

std::string ChromeTrace::json() const {
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
      std::string arguments =
          fmt::format(R"("call":{},"result":{})", wire::json_string(bar.name), wire::json_string(bar.result));
      if (bar.count > 1) arguments += fmt::format(R"(,"calls":{})", bar.count);
      add(fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                      wire::json_string(function_of(bar.name)), process, thread,
                      static_cast<double>(bar.start_ns - origin) / 1e3,
                      static_cast<double>(bar.end_ns - bar.start_ns) / 1e3, arguments));
    }
  }
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + events + "\n]}\n";
}

}  // namespace plugfest::trace
