#include "plugins/mesh/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace mesh {
namespace {

namespace abi = plugfest::abi;

constinit std::atomic<abi::Logger> g_logger = nullptr;
constexpr std::size_t kLineBytes = 1024;

}  // namespace

void set_logger(abi::Logger logger) { g_logger.store(logger, std::memory_order_release); }

void log_line(int level, const char* file, int line, const char* format, ...) {
  const abi::Logger logger = g_logger.load(std::memory_order_acquire);
  if (logger == nullptr) return;
  char text[kLineBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  logger(level, level == abi::kLogWarn ? ~0ul : abi::kLogInit | abi::kLogNet, file, line, "NET/mesh: %s", text);
}

}  // namespace mesh
