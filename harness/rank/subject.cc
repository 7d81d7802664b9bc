// Load, Unload and HasFunction.
#include "harness/rank/subject.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "fabric/system/text.h"
#include "harness/rank/exceptions.h"
#include "harness/rank/server.h"
#include "harness/rank/thread.h"
#include "harness/wire/fields.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

namespace {

// Maximum length of a name in messages; nothing else limits it.
constexpr std::size_t kMaxNameBytes = 64;

// Never destroyed: threads of the plugin may run while the process exits.
auto& loaded = *new std::unique_ptr<plugin::Library>;
// The net of that library, if the plugin under test is another interface. It stays initialized and loaded.
auto& loaded_net = *new std::unique_ptr<plugin::Library>;

// Writes of at most PIPE_BUF bytes to a pipe are atomic.
constexpr std::size_t kTextRoom = PIPE_BUF - 512;
constexpr std::size_t kFileRoom = 256;

__attribute__((format(printf, 5, 6))) void log(int level, unsigned long subsystems, const char* file, int line,
                                               const char* format, ...) {
  const int saved_errno = errno;
  char text[kTextRoom];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);

  LogRecord record;
  record.level = level;
  record.subsystems = subsystems;
  // Keeps the end of a long path.
  const std::size_t file_length = file == nullptr ? 0 : strlen(file);
  if (file_length > 0) record.file.assign(file + file_length - std::min(file_length, kFileRoom));
  record.line = line;
  record.text.assign(text, std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof text - 1));

  std::vector<std::byte> bytes(sizeof(std::uint32_t));
  Writer{bytes}(record);
  const auto size = static_cast<std::uint32_t>(bytes.size() - sizeof(std::uint32_t));
  std::memcpy(bytes.data(), &size, sizeof size);
  while (write(kLogFd, bytes.data(), bytes.size()) < 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

}  // namespace

InitNetAnswer execute(const InitNet& request) {
  InitNetAnswer answer;
  try {
    loaded_net = std::make_unique<plugin::Library>(request.plugin, 0, plugin::InterfaceKind::kNet);
  } catch (const plugin::LoadError&) {
    return answer;  // no net, or no library: Load tells
  }
  plugin::Net& net = loaded_net->net();
  describe_exceptions_of(loaded_net->path());
  void* context = nullptr;
  abi::newest::CommConfig config{abi::kTrafficClassUndefined};
  enter_plugin("init of the net", answer,
               [&] { return net.init(&context, 1, &config, logger(), profiler_callback(1)); });
  if (answer.code == 0) enter_plugin("devices of the net", answer, [&] { return net.devices(&answer.devices); });
  keep_reporting_crashes();
  return answer;
}

LoadAnswer execute(const Load& request) {
  if (loaded) throw std::logic_error("a plugin is loaded already");
  loaded = std::make_unique<plugin::Library>(request.plugin, request.api,
                                             static_cast<plugin::InterfaceKind>(request.interface));
  const plugin::Library& library = *loaded;
  keep_reporting_crashes();
  describe_exceptions_of(library.path());
  LoadAnswer answer;
  answer.path = library.path();
  answer.api = library.layout().api;
  answer.apis.assign(library.apis().rbegin(), library.apis().rend());
  answer.built_in = library.built_in();
  const char* name = library.name();
  answer.name_is_null = name == nullptr;
  if (name != nullptr) answer.name = shortened(name, kMaxNameBytes);
  return answer;
}

Nothing execute(const Unload&) {
  loaded.reset();
  return {};
}

HasFunctionAnswer execute(const HasFunction& request) {
  const bool is_net = library().layout().kind == plugin::InterfaceKind::kNet;
  if (!is_net) return {library().function(request.name) != nullptr};
  const plugin::SlotLayout* const slot = library().layout().find(request.name);
  return {slot != nullptr && subject().has(slot->slot)};
}

Text execute(const Name&) {
  const char* name = library().name();
  return {name == nullptr ? "" : shortened(name, kMaxNameBytes)};
}

plugin::Library& library() {
  if (!loaded) throw std::logic_error("no plugin is loaded");
  return *loaded;
}

plugin::Net& subject() {
  if (library().layout().kind != plugin::InterfaceKind::kNet) throw std::logic_error("the plugin is not a net plugin");
  return library().net();
}

abi::Logger logger() { return log; }

}  // namespace plugfest::rank
