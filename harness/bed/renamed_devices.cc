// The example's socket plugin with uninformative device names. The variable RENAMED_DEVICES contains some of:
//   pci        each device has the pciPath /sys/devices/virtual/net/<interface>
//   reversed   the last interface is the first device
//   same       all devices have one name
//   eth0       all devices are named "eth0"
//   deaf       connect never completes
//   endless    names, log lines and output are a megabyte long, and the device names are equal
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "harness/abi/net.h"

extern "C" plugfest::abi::v8::Net ncclNetPlugin_v8;

namespace {

using plugfest::abi::Result;
using plugfest::abi::v8::Properties;

plugfest::abi::v8::Net real;
std::set<std::string> texts;

const char* endless() {
  static const std::string text(1 << 20, 'n');
  return text.c_str();
}

bool has_word(const char* word) {
  const char* words = std::getenv("RENAMED_DEVICES");
  return words != nullptr && std::strstr(words, word) != nullptr;
}

int real_index(int index) {
  int count = 0;
  real.devices(&count);
  return has_word("reversed") ? count - 1 - index : index;
}

// Returns the same pointer for the same text, until the process ends.
char* kept(const std::string& text) { return const_cast<char*>(texts.insert(text).first->c_str()); }

Result init(plugfest::abi::Logger logger) {
  if (has_word("endless")) {
    logger(plugfest::abi::kLogWarn, ~0ul, "renamed_devices.cc", 1, "%s", endless());
    std::puts(endless());
    std::fflush(stdout);
  }
  return real.init(logger);
}

Result get_properties(int index, Properties* properties) {
  const Result result = real.getProperties(real_index(index), properties);
  if (result != Result::kSuccess) return result;
  if (has_word("pci")) properties->pciPath = kept(std::string("/sys/devices/virtual/net/") + properties->name);
  properties->name = kept(has_word("endless") ? endless()
                          : has_word("eth0")  ? "eth0"
                          : has_word("same")  ? "foo"
                                              : "foo" + std::to_string(index));
  return result;
}

Result listen(int index, void* handle, void** listen_comm) {
  return real.listen(real_index(index), handle, listen_comm);
}

Result connect(int index, void* handle, void** send_comm, plugfest::abi::DeviceHandle** device_handle) {
  *send_comm = nullptr;
  return has_word("deaf") ? Result::kSuccess : real.connect(real_index(index), handle, send_comm, device_handle);
}

[[gnu::constructor]] void replace_functions() {
  real = ncclNetPlugin_v8;
  if (has_word("endless")) ncclNetPlugin_v8.name = endless();
  ncclNetPlugin_v8.init = init;
  ncclNetPlugin_v8.getProperties = get_properties;
  ncclNetPlugin_v8.listen = listen;
  ncclNetPlugin_v8.connect = connect;
}

}  // namespace
