// The UDP sockets of benchmarks, and the main() of the probes.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/system/file.h"

namespace plugfest::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Errors: std::exception unless these are an IPv4 address and a port.
inline sockaddr_in endpoint(const std::string& address, const std::string& port) {
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  if (inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1)
    throw std::runtime_error("not an IPv4 address: " + address);
  return name;
}

inline const sockaddr* generic(const sockaddr_in& name) { return reinterpret_cast<const sockaddr*>(&name); }

/// A UDP socket with buffers of 8 MiB, or as large as allowed. The FORCE variants need CAP_NET_ADMIN in the initial
/// user namespace. Errors: std::system_error.
inline int udp_socket() {
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw_errno("create a socket");
  const int bytes = 8 << 20;
  for (const int option : {SO_RCVBUF, SO_RCVBUFFORCE, SO_SNDBUF, SO_SNDBUFFORCE})
    setsockopt(descriptor, SOL_SOCKET, option, &bytes, sizeof(bytes));
  return descriptor;
}

/// Sets an integer option of a socket. Errors: std::system_error.
inline void set(int descriptor, int level, int option, int value) {
  if (setsockopt(descriptor, level, option, &value, sizeof(value)) < 0) throw_errno("set an option of a socket");
}

inline void bind_to(int descriptor, const sockaddr_in& name) {
  if (bind(descriptor, generic(name), sizeof(name)) < 0) throw_errno("bind a socket");
}

/// The main() of a probe: `run` returns nothing for arguments that `usage` does not allow.
inline int run_probe(int argc, char** argv, const char* name, const char* usage,
                     std::optional<int> (*run)(const std::vector<std::string>& words)) {
  try {
    if (const std::optional<int> code = run({argv + 1, argv + argc})) return *code;
    fmt::print(stderr, "{}: usage: {}\n", name, usage);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
  }
  return 2;
}

}  // namespace plugfest::bench
