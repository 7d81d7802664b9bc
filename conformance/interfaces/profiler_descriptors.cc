#include "conformance/interfaces/profiler_descriptors.h"

#include <cstring>
#include <utility>

#include "harness/abi/profiler.h"

namespace plugfest::conformance {

namespace {

using Source = wire::CallScript::Source;
using wire::CallScript;

constexpr int kOwnRank = 0, kPeer = 1, kSteps = 8;

}  // namespace

// The bytes of a descriptor: members in the order of NCCL's headers, with their natural alignment.
class ProfilerDescriptors::Descriptor {
 public:
  template <typename T>
  void add(T value) {
    const std::size_t at = (bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_.resize(at + sizeof value);
    std::memcpy(&bytes_[at], &value, sizeof value);
  }
  void add_handle(EventSlot event) {
    add(std::uint64_t{0});
    pointers_.push_back({static_cast<std::uint32_t>(bytes_.size() - sizeof(std::uint64_t)), event});
  }
  // The union follows the rank and contains pointers.
  void begin_union() { bytes_.resize(24); }
  CallScript::Argument finish(int api) {
    // The sizes of ncclProfilerEventDescr_v1_t to _v7_t. The largest member of their unions is `coll`, whose members
    // add_collective() lists. Source: include/plugin/profiler/profiler_v1.h to profiler_v7.h.
    static constexpr std::size_t kSizes[] = {120, 128, 120, 104, 112, 112, 136};
    bytes_.resize(kSizes[api - 1]);
    return {.source = Source::kBytes, .bytes = std::move(bytes_), .pointers = std::move(pointers_)};
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<CallScript::Pointer> pointers_;
};

ProfilerDescriptors::ProfilerDescriptors(control::Rank& rank)
    : api_(rank.api()), pid_(std::stoi(rank.link_target("/proc/self"))) {  // in the rank's namespace of processes
  std::vector<std::byte> bytes;
  const control::Memory memory = rank.allocate(4096);
  const auto place = [&](const void* content, std::size_t size) {
    bytes.resize((bytes.size() + 7) / 8 * 8);
    const std::uint64_t address = memory.address() + bytes.size();
    const auto* const first = static_cast<const std::byte*>(content);
    bytes.insert(bytes.end(), first, first + size);
    return address;
  };
  for (const char* const text : {"plugfest", "AllReduce", "Send", "ncclFloat32", "RING", "SIMPLE", "UC", "compute"})
    texts_[text] = place(text, std::strlen(text) + 1);
  const abi::ProfilerQueuePairEvent net_event = {.wr_id = 1, .qpNum = 0x100, .length = 4096};
  net_event_ = place(&net_event, sizeof net_event);
  buffer_ = memory.address() + memory.size() / 2;
  rank.write(memory.address(), bytes);
}

CallScript::Argument ProfilerDescriptors::describe(std::uint64_t type, const EventParents& parents) const {
  Descriptor descriptor;
  if (api_ >= 5)
    descriptor.add(type);
  else
    descriptor.add(static_cast<std::uint8_t>(type));
  if (parents.foreign != 0)
    descriptor.add(parents.foreign);
  else
    descriptor.add_handle(parents.parent);
  descriptor.add(kOwnRank);
  descriptor.begin_union();
  add_members(descriptor, type, parents);
  return descriptor.finish(api_);
}

void ProfilerDescriptors::add_members(Descriptor& descriptor, std::uint64_t type, const EventParents& parents) const {
  constexpr std::uint64_t kTimer = 1'000'000, kStream = 0, kTag = 0;
  const auto text = [&](std::string_view name) { descriptor.add(texts_.find(name)->second); };
  switch (type) {
    case abi::kProfileGroupApi:
      descriptor.add(false);
      descriptor.add(1);
      break;
    case abi::kProfileCollApi:
    case abi::kProfileP2pApi:
      text(type == abi::kProfileCollApi ? "AllReduce" : "Send");
      descriptor.add(std::size_t{1024});
      text("ncclFloat32");
      if (type == abi::kProfileCollApi) descriptor.add(0);
      descriptor.add(kStream);
      descriptor.add(false);
      if (api_ >= 7) descriptor.add(kTag);
      break;
    case abi::kProfileKernelLaunch:
      descriptor.add(kStream);
      break;
    case abi::kProfileColl:
      add_collective(descriptor, parents.group);
      break;
    case abi::kProfileP2p:
      add_point_to_point(descriptor, parents.group);
      break;
    case abi::kProfileProxyOp:
      descriptor.add(parents.foreign == 0 ? pid_ : pid_ + 1);
      descriptor.add(std::uint8_t{0});
      for (const int number : {kPeer, kSteps, 4096, 1}) descriptor.add(number);
      break;
    case abi::kProfileProxyStep:
      descriptor.add(0);
      break;
    case abi::kProfileKernelCh:
      descriptor.add(std::uint8_t{0});
      if (api_ >= 4) descriptor.add(kTimer);
      break;
    case abi::kProfileNetPlugin:
      descriptor.add(abi::kProfilerQueuePairId);
      descriptor.add(net_event_);
      break;
    case abi::kProfileCeColl:
      descriptor.add(std::uint64_t{1});
      text("AllReduce");
      for (const std::uint64_t word : {buffer_, buffer_, std::uint64_t{1024}}) descriptor.add(word);
      descriptor.add(0);
      text("ncclFloat32");
      text("UC");
      descriptor.add(false);
      for (const std::uint32_t number : {0u, 0u, 1u}) descriptor.add(number);
      descriptor.add(kStream);
      if (api_ >= 7) descriptor.add(kTag);
      break;
    case abi::kProfileCeSync:
      descriptor.add(true);
      descriptor.add(2);
      break;
    case abi::kProfileCeBatch:
      descriptor.add(2);
      descriptor.add(std::size_t{4096});
      descriptor.add(false);
      break;
    case abi::kProfileKernelPhase:
      descriptor.add(std::uint8_t{0});
      descriptor.add(std::uint8_t{1});
      text("compute");
      descriptor.add(kTimer);
      break;
    default:
      break;
  }
}

void ProfilerDescriptors::add_collective(Descriptor& descriptor, EventSlot group) const {
  const auto text = [&](std::string_view name, std::uint8_t number_of_v1) {
    if (api_ == 1)
      descriptor.add(number_of_v1);
    else
      descriptor.add(texts_.find(name)->second);
  };
  if (api_ <= 3) {
    descriptor.add(named_ ? texts_.find("plugfest")->second : 0);
    descriptor.add(std::uint64_t{0x1000});
  }
  descriptor.add(std::uint64_t{1});
  text("AllReduce", 4);
  for (const std::uint64_t word : {buffer_, buffer_, std::uint64_t{1024}}) descriptor.add(word);
  descriptor.add(0);
  text("ncclFloat32", 7);
  if (api_ == 1) descriptor.add(std::uint32_t{0});
  if (api_ <= 2) descriptor.add(std::size_t{4096});
  descriptor.add(std::uint8_t{1});
  descriptor.add(std::uint8_t{16});
  text("RING", 1);
  text("SIMPLE", 2);
  if (api_ == 1)
    for (const int number : {0, 0}) descriptor.add(number);
  if (api_ >= 5) descriptor.add_handle(group);
  if (api_ < 7) return;
  descriptor.add(std::uint64_t{0});
  descriptor.add(false);
  descriptor.add(std::uint64_t{0});
}

void ProfilerDescriptors::add_point_to_point(Descriptor& descriptor, EventSlot group) const {
  if (api_ <= 3) {
    descriptor.add(named_ ? texts_.find("plugfest")->second : 0);
    descriptor.add(std::uint64_t{0x1000});
  }
  if (api_ == 1)
    descriptor.add(std::uint8_t{6});
  else
    descriptor.add(texts_.find("Send")->second);
  descriptor.add(buffer_);
  if (api_ == 1)
    descriptor.add(std::uint8_t{7});
  else
    descriptor.add(texts_.find("ncclFloat32")->second);
  descriptor.add(std::size_t{1024});
  descriptor.add(kPeer);
  if (api_ >= 4) descriptor.add(std::uint8_t{1});
  if (api_ >= 5) descriptor.add_handle(group);
  if (api_ >= 7) descriptor.add(std::uint64_t{0});
}

}  // namespace plugfest::conformance
