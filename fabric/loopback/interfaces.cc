#include "fabric/loopback/interfaces.h"

#include <arpa/inet.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace plugfest::loopback {
namespace {

constexpr int kFirstIndex = 1 << 20;

}  // namespace

std::array<std::uint8_t, 6> Interface::mac() const {
  std::array<std::uint8_t, 6> bytes = {0x02, 0x00};
  std::memcpy(bytes.data() + 2, &address, sizeof(address));
  return bytes;
}

std::string to_text(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    char address[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &interface.address, address, sizeof(address));
    text += (text.empty() ? "" : ";") + interface.name + '=' + address + '/' + std::to_string(interface.prefix_length) +
            ',' + std::to_string(interface.mtu_bytes);
  }
  return text;
}

std::optional<std::vector<Interface>> interfaces_of_this_process() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return std::nullopt;
  std::vector<Interface> interfaces;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ';');) {
    const std::size_t equals = item.find('=');
    const std::size_t slash = item.find('/', equals);
    const std::size_t comma = item.find(',', slash);
    if (equals == std::string::npos || slash == std::string::npos || comma == std::string::npos) continue;
    Interface interface;
    interface.name = item.substr(0, equals);
    interface.prefix_length = std::atoi(item.c_str() + slash + 1);
    interface.mtu_bytes = std::atoi(item.c_str() + comma + 1);
    interface.index = kFirstIndex + static_cast<int>(interfaces.size());
    const std::string address = item.substr(equals + 1, slash - equals - 1);
    if (inet_pton(AF_INET, address.c_str(), &interface.address) == 1) interfaces.push_back(interface);
  }
  return interfaces;
}

}  // namespace plugfest::loopback
