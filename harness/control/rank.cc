#include "harness/control/rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

#include "fabric/system/text.h"
#include "harness/control/call.h"
#include "harness/control/rank_process.h"

namespace plugfest::control {

namespace {

// Maximum length of a name in the records of calls.
constexpr std::size_t kMaxNameBytes = 80;

Check to_check(const wire::Difference& difference, std::size_t size) {
  if (difference.bytes == 0) return {};
  return {false, fmt::format("byte {} is 0x{:02x}, expected 0x{:02x} ({} of {} differ)", difference.offset,
                             difference.got, difference.expected, difference.bytes, counted(size, "byte"))};
}

}  // namespace

Rank::Rank(std::shared_ptr<RankProcess> process, std::string thread)
    : process_(std::move(process)), thread_(std::move(thread)) {}

const std::string& Rank::name() const { return process_->name(); }
int Rank::api() const { return process_->library().api; }
const LibraryFacts& Rank::library() const { return process_->library(); }
pid_t Rank::pid() const {
  if (process_->pid() > 0) return process_->pid();
  throw Unusable(fmt::format("rank {} runs on another machine, and this needs its process here", name()));
}
Rank Rank::on(std::string_view thread) const { return Rank(process_, std::string(thread)); }

const LibraryFacts& Rank::load(std::optional<int> api, std::optional<plugin::InterfaceKind> interface) {
  const Subject& subject = process_->subject();
  const plugin::InterfaceKind kind = interface.value_or(subject.interface);
  if (plugin::connects_all_ranks(kind)) init_net();
  const auto call =
      process_->send(thread_, wire::Load{subject.plugin, api.value_or(subject.api), static_cast<std::uint8_t>(kind)},
                     fmt::format("dlopen {}", subject.plugin));
  wire::LoadAnswer answer;
  try {
    answer = process_->read<wire::LoadAnswer>(*call);
  } catch (const Refused& refusal) {
    // The library belongs to NVIDIA's driver; every user of the plugin has it.
    if (refusal.missing() != "libcuda.so.1") throw;
    throw Unusable(
        "the library needs libcuda.so.1, which this machine does not have: install NVIDIA's driver, or add "
        "--emulate-gpu");
  }
  process_->set_library({subject.plugin, std::move(answer.path), kind, answer.api, std::move(answer.apis),
                         answer.built_in, std::move(answer.name), answer.name_is_null});
  return process_->library();
}

std::string Rank::plugin_name() { return process_->ask(wire::Name{}, thread_).text; }

void Rank::unload() {
  process_->mark_unfit();
  process_->ledger.unloading(process_->pid(), process_->library().path);
  process_->wait(*process_->send(thread_, wire::Unload{}, "dlclose"));
}

void Rank::init_net() {
  const auto call = process_->send(thread_, wire::InitNet{process_->subject().plugin}, "init and devices of the net");
  const auto answer = process_->read<wire::InitNetAnswer>(*call);
  if (answer.start_ns == 0) return;
  process_->record(*call, answer, result_text(answer, counted(static_cast<std::size_t>(answer.devices), "device")));
}

bool Rank::is_net() const { return library().interface == plugin::InterfaceKind::kNet; }

std::uint64_t Rank::init(const InitOptions& options) {
  if (!is_net()) {
    const CallOutcome outcome = call("init", init_arguments(library().interface, options.comm_id));
    const std::uint64_t context = outcome.pointer("*ctx");  // a version has at most one of the two
    return context != 0 ? context : outcome.pointer("*context");
  }
  const PointerOutcome outcome = try_init(options);
  require_success(outcome);
  return process_->ledger.contexts.back();
}

Started<PointerOutcome> Rank::start_init(const InitOptions& options) {
  const std::uint64_t stored_before = slot_value(options.context, kPoison);
  const std::vector<std::int32_t> config = {options.traffic_class};
  return start_net<PointerOutcome>(
      process_, thread_, {"init", {stored_before, options.comm_id, config, 0, options.profiler}}, "init()",
      [stored_before, preset = options.context](PointerOutcome& outcome, const wire::CalledAnswer& answer,
                                                RankProcess& rank) {
        take_pointer(outcome, answer, 0, stored_before);
        // In NCCL the context is NULL when the plugin stores none.
        const bool stored = !(outcome.untouched && preset == Preset::kPoison);
        if (outcome.ok()) rank.ledger.contexts.push_back(stored ? outcome.value : 0);
        return stored && outcome.value != 0 ? fmt::format("context {}", pointer_text(outcome.value))
                                            : std::string("Success");
      });
}

void Rank::finalize(std::uint64_t context) {
  if (is_net()) return require_success(try_finalize(context));
  const plugin::SlotLayout* const finalize = plugin::api_layout(library().interface, api()).find("finalize");
  if (finalize != nullptr) call("finalize", {{std::string(finalize->parameters.back().name), context}});
}

Started<Outcome> Rank::start_finalize(std::uint64_t context) {
  return start_plain(process_, thread_, {"finalize", {context}}, fmt::format("finalize({})", pointer_text(context)),
                     [context](RankProcess& rank) {
                       auto& contexts = rank.ledger.contexts;
                       const auto found = std::find(contexts.begin(), contexts.end(), context);
                       // Other rules need the first context.
                       if (found == contexts.begin()) rank.mark_unfit();
                       if (found != contexts.end()) contexts.erase(found);
                     });
}

const std::vector<std::uint64_t>& Rank::contexts() const { return process_->ledger.contexts; }

int Rank::devices() {
  const IntOutcome outcome = try_devices(0);  // only DP-01 checks the value that the plugin writes
  require_success(outcome);
  return outcome.value;
}

IntOutcome Rank::try_devices(int preset) {
  if (!is_net()) {
    const CallOutcome outcome = try_call("devices", {{"*ndev", preset}});
    return {outcome, outcome.integer("*ndev"), outcome.untouched("*ndev")};
  }
  return start_net<IntOutcome>(process_, thread_, {"devices", {preset}}, "devices()",
                               [preset](IntOutcome& outcome, const wire::CalledAnswer& answer, RankProcess&) {
                                 outcome.value = static_cast<int>(output_of(answer, 0).number);
                                 outcome.untouched = outcome.value == preset;
                                 return std::to_string(outcome.value);
                               })
      .get();
}

namespace {

std::uint64_t context_or_first(const RankProcess& process, const std::optional<std::uint64_t>& context) {
  return context.value_or(process.ledger.contexts.empty() ? 0 : process.ledger.contexts.front());
}

// Sets the members that follow from the bytes of the properties and the version in use. `texts`: see
// wire::CalledAnswer.
void describe(PropertiesOutcome& outcome, RankProcess& process, std::uint8_t fill,
              const std::vector<std::string>& texts) {
  const plugin::ApiLayout& layout = plugin::api_layout(process.library().interface, process.library().api);
  if (outcome.bytes.size() != layout.properties_size) throw HarnessError("properties of another size");
  std::map<std::string_view, std::string> stored;
  for (const plugin::FieldLayout& field : layout.properties) {
    outcome.fields.push_back({std::string(field.name), field.offset, field.size});
    if (field.kind != plugin::FieldKind::kString) continue;
    if (stored.size() == texts.size()) throw HarnessError("properties without their texts");
    stored.emplace(field.name, texts[stored.size()]);
  }
  const auto text = [&](std::string_view field) -> std::optional<std::string> {
    const auto address = static_cast<std::uint64_t>(outcome.integer(field));
    if (address == 0 || address == fill * 0x0101010101010101ull) return std::nullopt;
    return stored.at(field);
  };
  outcome.name = text("name");
  outcome.pci_path = text("pciPath");
}

}  // namespace

PropertiesOutcome Rank::try_properties(Device device, std::uint8_t fill) {
  if (is_net()) return start_properties(device, fill).get();
  const CallOutcome called = try_call("getProperties", {{"dev", device.index}, {"*props", fill}});
  PropertiesOutcome outcome{called, called.bytes("*props"), {}, {}, {}};
  describe(outcome, *process_, fill, called.texts);
  return outcome;
}

Started<PropertiesOutcome> Rank::start_properties(Device device, std::uint8_t fill) {
  return start_net<PropertiesOutcome>(
      process_, thread_, {"getProperties", {device.index, fill}}, fmt::format("getProperties({})", device.index),
      [fill](PropertiesOutcome& outcome, const wire::CalledAnswer& answer, RankProcess& process) {
        outcome.bytes = output_of(answer, 1).bytes;
        describe(outcome, process, fill, answer.texts);
        return shortened(outcome.name.value_or("Success"), kMaxNameBytes);
      });
}

IntOutcome Rank::try_make_vdevice(const std::vector<int>& devices, std::optional<int> count) {
  std::vector<std::int32_t> members(1 + abi::kMaxVDeviceMembersV12);
  members[0] = count.value_or(static_cast<std::int32_t>(devices.size()));
  std::copy_n(devices.begin(), std::min(devices.size(), members.size() - 1), members.begin() + 1);
  const int preset = static_cast<int>(kPoison);
  return start_net<IntOutcome>(process_, thread_, {"makeVDevice", {preset, members}},
                               fmt::format("makeVDevice({})", fmt::join(devices, ", ")),
                               [](IntOutcome& outcome, const wire::CalledAnswer& answer, RankProcess& rank) {
                                 outcome.value = static_cast<int>(output_of(answer, 0).number);
                                 outcome.untouched = outcome.value == static_cast<int>(kPoison);
                                 rank.mark_unfit();  // the new device persists
                                 return fmt::format("device {}", outcome.value);
                               })
      .get();
}

Properties Rank::properties(Device device) { return properties_of(try_properties(device), device.index); }

Properties properties_of(const PropertiesOutcome& outcome, int device) {
  require_success(outcome);
  const auto or_else = [&](std::string_view field, std::int64_t otherwise) {
    return outcome.has(field) ? outcome.integer(field) : otherwise;
  };
  Properties properties;
  properties.name = outcome.name.value_or("");
  properties.pci_path = outcome.pci_path;
  properties.guid = static_cast<std::uint64_t>(outcome.integer("guid"));
  properties.ptr_support = static_cast<int>(outcome.integer("ptrSupport"));
  properties.reg_is_global = static_cast<int>(or_else("regIsGlobal", 0));
  properties.force_flush = static_cast<int>(or_else("forceFlush", 0));
  properties.speed_mbit_per_second = static_cast<int>(outcome.integer("speed"));
  properties.port = static_cast<int>(outcome.integer("port"));
  properties.latency_us = outcome.real("latency");
  properties.max_comms = static_cast<int>(outcome.integer("maxComms"));
  properties.max_recvs = static_cast<int>(outcome.integer("maxRecvs"));
  properties.net_device_type = static_cast<int>(or_else("netDeviceType", 0));
  properties.net_device_version = static_cast<int>(or_else("netDeviceVersion", 0));
  if (outcome.has("vProps.ndevs")) {
    const std::int64_t count = outcome.integer("vProps.ndevs");
    for (std::size_t i = 0; std::cmp_less(i, count) && outcome.has(fmt::format("vProps.devs[{}]", i)); ++i)
      properties.v_props.push_back(static_cast<int>(outcome.integer("vProps.devs", i)));
  } else {
    properties.v_props = {device};
  }
  properties.max_p2p_bytes = static_cast<std::uint64_t>(or_else("maxP2pBytes", std::int64_t{1} << 30));
  properties.max_coll_bytes = static_cast<std::uint64_t>(or_else("maxCollBytes", std::int64_t{1} << 29));
  return properties;
}

Outcome Rank::try_set_net_attributes(std::uint64_t context, const NetAttributes& attributes) {
  std::vector<std::int32_t> values(attributes.send.begin(), attributes.send.end());
  values.insert(values.end(), attributes.receive.begin(), attributes.receive.end());
  for (const std::uint32_t bits : {attributes.op, attributes.algo, attributes.proto})
    values.push_back(static_cast<std::int32_t>(bits));
  return start_plain(process_, thread_, {"setNetAttr", {context, values}},
                     fmt::format("setNetAttr({})", pointer_text(context)), [](RankProcess&) {})
      .get();
}

bool Rank::has_function(std::string_view slot) { return process_->ask(wire::HasFunction{std::string(slot)}).has; }

Listener Rank::listen(Device device, const ListenOptions& options) {
  const ListenOutcome outcome = try_listen(device, options);
  require_success(outcome);
  if (outcome.untouched || outcome.value == 0)
    throw Deviation(name(), fmt::format("{} succeeded and stored no comm", outcome.call));
  return listener(outcome);
}

Started<ListenOutcome> Rank::start_listen(Device device, const ListenOptions& options) {
  const std::uint64_t context = context_or_first(*process_, options.context);
  const std::uint64_t stored = slot_value(options.comm, kPoison);
  return start_net<ListenOutcome>(
      process_, thread_, {"listen", {context, device.index, options.handle_fill, stored}},
      fmt::format("listen(device {})", device.index),
      [stored](ListenOutcome& outcome, const wire::CalledAnswer& answer, RankProcess& rank) {
        take_pointer(outcome, answer, 3, stored);
        const std::vector<std::byte>& handle = output_of(answer, 2).bytes;
        if (handle.size() != outcome.handle.bytes.size()) throw HarnessError("a handle of another size");
        std::copy(handle.begin(), handle.end(), outcome.handle.bytes.begin());
        if (outcome.ok() && outcome.value != 0 && outcome.value != kPoison) rank.ledger.listeners.insert(outcome.value);
        return fmt::format("listener {}", pointer_text(outcome.value));
      });
}

Listener Rank::listener(const ListenOutcome& outcome) const {
  return Listener(process_, thread_, outcome.value, outcome.handle);
}

Connect Rank::connect(Device device, const Handle& handle, const AttemptOptions& options) {
  const std::vector<std::byte> bytes(handle.bytes.begin(), handle.bytes.end());
  return Connect(process_, thread_, {"connect", {context_or_first(*process_, options.context), device.index, bytes}},
                 fmt::format("connect(device {})", device.index), options);
}

Accept Rank::accept(const Listener& listener, const AttemptOptions& options) {
  return Accept(process_, thread_, {"accept", {listener.value()}},
                fmt::format("accept(listener {})", pointer_text(listener.value())), options);
}

void Rank::free_attempts() { process_->ask(wire::EndAttempts{std::exchange(process_->ledger.finished_attempts, {})}); }
void Rank::forbid_attempts() {
  process_->ask(wire::EndAttempts{std::exchange(process_->ledger.finished_attempts, {}), true});
}

Outcome Rank::try_close_send(std::uint64_t comm) { return SendComm(process_, thread_, comm).try_close(); }
Outcome Rank::try_close_recv(std::uint64_t comm) { return RecvComm(process_, thread_, comm).try_close(); }
Outcome Rank::try_close_listen(std::uint64_t comm) { return Listener(process_, thread_, comm, {}).try_close(); }
TestOutcome Rank::try_test(std::uint64_t request, const TestOptions& options) {
  return Request(process_, thread_, request).try_test(options);
}

GpuFacts Rank::gpu(bool enter) {
  const wire::GpuAnswer answer = process_->ask(wire::UseGpu{enter}, thread_);
  return {answer.problem, answer.name, answer.context};
}

Memory Rank::allocate(std::size_t size, Placement placement) {
  const wire::Mapping mapping =
      process_->ask(wire::Map{size, placement == Placement::kEnd, placement == Placement::kGpu});
  process_->ledger.memory.push_back({mapping, size});
  return Memory(process_, {mapping.address, size}, {mapping.pages_address, mapping.pages_size});
}

void Rank::fill(const Slice& slice, std::uint64_t seed) {
  process_->ask(wire::Fill{{slice.address, slice.size, seed}});
}

Check Rank::check(const Slice& slice, std::uint64_t seed) {
  return to_check(process_->ask(wire::Check{{slice.address, slice.size, seed}}), slice.size);
}

void Rank::set(const Slice& slice, std::uint8_t value) { process_->ask(wire::Set{{slice.address, slice.size, value}}); }

Check Rank::check_set(const Slice& slice, std::uint8_t value) {
  return to_check(process_->ask(wire::CheckSet{{slice.address, slice.size, value}}), slice.size);
}

std::vector<std::byte> Rank::read(const Slice& slice) {
  return process_->ask(wire::Read{{slice.address, slice.size}}).bytes;
}

void Rank::write(std::uint64_t address, const std::vector<std::byte>& bytes) {
  process_->ask(wire::Write{address, bytes});
}

void Rank::freeze() { process_->freeze(); }
void Rank::thaw() { process_->thaw(); }
void Rank::kill() { process_->kill(); }
bool Rank::reaped() const { return process_->reaped(); }

void Rank::exit(bool close_comms) {
  wire::Exit request;
  if (close_comms)
    for (const auto& [comm, kind] : process_->ledger.comms) request.close_after_plugin.push_back({kind, comm});
  process_->exit(request);
}

int Rank::fork(Child child) {
  process_->mark_unfit();
  const auto call = process_->send(thread_, wire::Fork{static_cast<wire::ForkAction>(child)}, "fork");
  return process_->read<wire::ForkAnswer>(*call).status;
}

ProcessFacts Rank::process() {
  auto facts = process_->ask(wire::ProcessFacts{});
  return {facts.threads, facts.file_descriptors,     facts.resident_bytes,        facts.locked_bytes,
          facts.cpu_ns,  std::move(facts.libraries), std::move(facts.environment)};
}

CallsInPlugin Rank::count_calls(const std::optional<CallInPlugin>& failing) {
  process_->mark_unfit();
  wire::FailCall request = {.counts = true, .function = {}, .call = {}};
  if (failing) request = {true, failing->function, failing->call, failing->number};
  wire::FailCallAnswer answer = process_->ask(request);
  CallsInPlugin calls = {{}, answer.failed, std::move(answer.failed_at), std::move(answer.invalid_close)};
  for (wire::CallsMade& made : answer.made)
    calls.last.push_back({std::move(made.function), std::move(made.call), made.count});
  return calls;
}

void Rank::record_profiler(const ProfilerAnswers& answers) {
  process_->mark_unfit();
  process_->ask(wire::RecordProfiler{true, answers.stores_handles, answers.result});
}

std::vector<ProfilerCall> Rank::profiler_calls() {
  wire::RecordProfilerAnswer answer = process_->ask(wire::RecordProfiler{true});
  if (answer.left_out != 0)
    throw HarnessError(fmt::format("rank {}: {} calls of the profiler callback were not recorded: send fewer messages",
                                   name(), answer.left_out));
  std::vector<ProfilerCall> calls;
  for (wire::ProfilerCall& call : answer.calls) {
    calls.push_back({static_cast<int>(call.callback), call.at_ns, std::move(call.function), call.event, call.accessible,
                     call.handle_before, call.handle_after, call.type, call.phandle, call.plugin_id, call.data,
                     call.readable_bytes});
  }
  return calls;
}

std::vector<LogLine> Rank::log() { return process_->capture()->log(); }
std::string Rank::output() { return process_->capture()->output(); }

}  // namespace plugfest::control
