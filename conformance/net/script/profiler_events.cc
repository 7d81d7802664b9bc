#include "conformance/net/script/profiler_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "fabric/system/text.h"
#include "harness/abi/base.h"

namespace plugfest::conformance {
namespace {

std::string address_text(std::uint64_t address) { return address == 0 ? "NULL" : fmt::format("{:#x}", address); }

const char* verb(int type) {
  switch (type) {
    case abi::kProfilerNetStart:
      return "started";
    case abi::kProfilerNetStop:
      return "stopped";
    case abi::kProfilerNetUpdate:
      return "updated";
    default:  // NCCL takes any other number for this one
      return "updated and stopped";
  }
}

// Distinct phandles in the memory of a rank, like NCCL's phandles.
class Phandles {
 public:
  Phandles(Rank rank, std::size_t count) : memory_(rank.allocate(count * kBytes)) {}
  std::uint64_t next() { return memory_.sub(kBytes * used_++, kBytes).address; }
  std::vector<std::uint64_t> next(std::size_t count) {
    std::vector<std::uint64_t> phandles(count);
    for (std::uint64_t& phandle : phandles) phandle = next();
    return phandles;
  }

 private:
  static constexpr std::size_t kBytes = 16;
  Memory memory_;
  std::size_t used_ = 0;
};

// Closes a comm after its registration. Returns the end of the call.
template <typename CommType>
std::int64_t close(CommType comm, Registered memory) {
  memory.release();
  const Outcome outcome = comm.try_close();
  require_success(outcome);
  return outcome.end_ns;
}

constexpr std::array<std::size_t, 5> kSizes = {1, 1000, 5000, 70'000, 300'000};
// Which of these sizes the messages of groups have.
constexpr std::size_t kOfGroups = 1;
constexpr std::size_t kGroups = 2;

}  // namespace

const ProfiledRequest* ProfilerReport::request_with(std::uint64_t phandle) const {
  for (const ProfiledRequest& request : requests)
    if (std::find(request.phandles.begin(), request.phandles.end(), phandle) != request.phandles.end()) return &request;
  return nullptr;
}

std::vector<ProfilerCall> ProfilerReport::starts() const {
  std::vector<ProfilerCall> starts;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(starts),
               [](const ProfilerCall& call) { return call.type == abi::kProfilerNetStart; });
  return starts;
}

std::size_t ProfilerReport::starts_with(std::uint64_t phandle) const {
  return static_cast<std::size_t>(std::count_if(calls.begin(), calls.end(), [&](const ProfilerCall& call) {
    return call.type == abi::kProfilerNetStart && call.phandle == phandle;
  }));
}

std::string ProfilerReport::describe(const ProfilerCall& call) const {
  const std::string who = call.function.empty() ? "a thread of the plugin" : call.function;
  const std::string phandle =
      call.type == abi::kProfilerNetStart ? fmt::format(", phandle {}", address_text(call.phandle)) : "";
  return fmt::format("rank {}: {} {} the event with eHandle {}{}", rank, who, verb(call.type), address_text(call.event),
                     phandle);
}

std::string ProfilerReport::flaw_in_order() const {
  std::map<std::uint64_t, ProfilerCall> open;  // by eHandle
  std::set<std::uint64_t> stopped;
  for (const ProfilerCall& call : calls) {
    if (call.type == abi::kProfilerNetStart) {
      const ProfiledRequest* const request = request_with(call.phandle);
      if (request != nullptr && call.at_ns > request->done_ns)
        return describe(call) + fmt::format(" after test had reported the {} as done", request->what);
      open.insert_or_assign(call.event, call);
      continue;
    }
    const auto started = open.find(call.event);
    if (started == open.end()) {
      return describe(call) +
             (stopped.contains(call.event) ? ", which it had stopped before" : ", which it had not started");
    }
    if (call.type == abi::kProfilerNetUpdate) continue;
    const ProfiledRequest* const request = request_with(started->second.phandle);
    if (request != nullptr && call.at_ns > request->done_ns)
      return describe(call) + fmt::format(" after test had reported the {} as done", request->what);
    open.erase(started);
    stopped.insert(call.event);
  }
  if (open.empty()) return "";
  const ProfilerCall& left = open.begin()->second;
  const ProfiledRequest* const request = request_with(left.phandle);
  return describe(left) + fmt::format(" for the {} and never stopped it ({} of {} events)",
                                      request == nullptr ? "message" : request->what, open.size(), starts().size());
}

std::vector<ProfilerReport> ProfilerCallbackRule::deliver_messages(const ProfiledDelivery& delivery) {
  return deliver_messages_over(connect(sender(), receiver()), delivery);
}

std::vector<ProfilerReport> ProfilerCallbackRule::deliver_messages_over(const Connection& connection,
                                                                        const ProfiledDelivery& delivery) {
  const bool phandles = delivery.phandles;
  const std::size_t width = std::min<std::size_t>(max_recvs(), 4);
  const std::size_t grouped = width > 1 ? width * kGroups : 0;
  Flow flow = make_flow(connection, kSizes.size() + grouped, kSizes.back());
  Phandles of_sender(flow.sender(), kSizes.size() + grouped), of_receiver(flow.receiver(), kSizes.size() + grouped);
  std::vector<ProfilerReport> reports(2);
  reports[0].rank = flow.sender().name();
  reports[1].rank = flow.receiver().name();
  std::vector<std::vector<Flow::Ticket>> tickets(2);
  const auto send = [&](std::size_t slot, std::size_t size, int tag) {
    const std::uint64_t phandle = phandles ? of_sender.next() : 0;
    tickets[0].push_back(traffic().send(flow.send_comm(), flow.fill(slot, size, tag), tag, {.phandle = phandle}));
    reports[0].requests.push_back({fmt::format("isend of {}, tag {}", counted(size, "byte"), tag), {phandle}});
  };
  for (Rank* rank : {&flow.sender(), &flow.receiver()}) rank->record_profiler(delivery.answers);

  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    const std::uint64_t phandle = phandles ? of_receiver.next() : 0;
    tickets[1].push_back(flow.receive(i, kSizes[i], 0, {.phandle = phandle, .phandle_array = delivery.phandle_array}));
    reports[1].requests.push_back({fmt::format("irecv of {}", counted(kSizes[i], "byte")), {phandle}});
    send(i, kSizes[i], 0);
  }
  for (ProfilerReport& report : reports) report.single = report.requests.at(kOfGroups).phandles.front();
  traffic().finish();
  for (std::size_t first = kSizes.size(); first < kSizes.size() + grouped; first += width) {
    const std::vector<int> tags = tags_from(100, width);
    const std::vector<std::uint64_t> of_group = phandles ? of_receiver.next(width) : std::vector<std::uint64_t>(width);
    const PostOptions options = {.phandles = of_group, .phandle_array = delivery.phandle_array};
    tickets[1].push_back(traffic().receive(flow.recv_comm(), flow.parts(first, tags), options));
    reports[1].requests.push_back({fmt::format("irecv of {} buffers", width), of_group});
    reports[1].groups.push_back(of_group);
    std::vector<std::uint64_t>& of_sends = reports[0].groups.emplace_back();
    for (std::size_t i = 0; i < width; ++i) {
      send(first + i, kSizes[kOfGroups], tags[i]);
      of_sends.push_back(reports[0].requests.back().phandles.front());
    }
  }
  flow.finish();
  for (std::size_t side = 0; side < 2; ++side)
    for (std::size_t i = 0; i < tickets[side].size(); ++i)
      reports[side].requests[i].done_ns = traffic().outcome(tickets[side][i]).end_ns;
  reports[0].closed_ns = close(flow.send_comm(), flow.from());
  reports[1].closed_ns = close(flow.recv_comm(), flow.to());
  reports[0].calls = flow.sender().profiler_calls();
  reports[1].calls = flow.receiver().profiler_calls();
  return reports;
}

void ProfilerCallbackRule::require_events(const std::vector<ProfilerReport>& reports) {
  if (std::all_of(reports.begin(), reports.end(), [](const ProfilerReport& report) { return report.calls.empty(); }))
    not_applicable("the plugin reports no events to the profiler");
}

std::vector<ProfilerReport> ProfilerCallbackRule::delivered_events() {
  std::vector<ProfilerReport> reports = deliver_messages();
  require_events(reports);
  return reports;
}

}  // namespace plugfest::conformance
