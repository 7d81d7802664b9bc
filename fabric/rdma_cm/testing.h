// Functions that several tests of this folder use.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <mutex>

#include "fabric/rdma_cm/poller.h"
#include "fabric/roce/wire/address.h"

namespace plugfest::rdma_cm {

/// A poller and its lock. It must live until the process ends: tests create it with `new`.
struct Polling {
  std::mutex lock;
  Poller poller{lock};
};

/// The loopback address 127.NUMBER.x.y, where x and y depend on the process, so that no other test has it.
inline roce::Address own_loopback_address(int number) {
  in_addr ipv4 = {};
  inet_pton(AF_INET, fmt::format("127.{}.{}.{}", number, ::getpid() >> 8 & 255, ::getpid() & 255).c_str(), &ipv4);
  return roce::Address(ipv4);
}

}  // namespace plugfest::rdma_cm
