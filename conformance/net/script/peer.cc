#include "conformance/net/script/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "conformance/net/script/process_state.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {

namespace {

// Inodes of the open sockets of a process: "123" for a descriptor that links to "socket:[123]".
std::set<std::string> open_sockets(pid_t process) {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// IPv4 addresses at which the process can be reached. A listener on all addresses, IPv4 or IPv6, counts as one on
// loopback. IPv6 listeners on one address are ignored.
std::vector<sockaddr_in> listening_addresses(pid_t process) {
  constexpr std::string_view kListening = "0A";
  const std::set<std::string> own = open_sockets(process);
  std::vector<sockaddr_in> addresses;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", process, table));
    std::string line;
    std::getline(file, line);  // column headings
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
      if (state != kListening || own.count(inode) == 0) continue;
      const std::size_t colon = local.find(':');
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(std::stoul(local.substr(colon + 1), nullptr, 16)));
      const bool on_all_addresses = local.find_first_not_of('0') >= colon;
      if (colon == 8 && !on_all_addresses)
        address.sin_addr.s_addr = static_cast<in_addr_t>(std::stoul(local.substr(0, 8), nullptr, 16));
      else if (on_all_addresses)
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      else
        continue;
      addresses.push_back(address);
    }
  }
  return addresses;
}

}  // namespace

UntrustedConnections::UntrustedConnections(pid_t process, const std::vector<std::byte>& garbage) {
  in_network_of(process, [&] {
    for (const sockaddr_in& address : listening_addresses(process)) {
      for (const bool silent : {false, true}) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
          if (fd >= 0) close(fd);
          continue;
        }
        if (!silent) (void)!send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL);
        sockets_.push_back(fd);
      }
    }
  });
}

UntrustedConnections::~UntrustedConnections() {
  for (const int fd : sockets_) close(fd);
}

RankOptions retrying_briefly() {
  return {.fresh = true, .environment = {{"NCCL_SOCKET_RETRY_CNT", "2"}, {"NCCL_SOCKET_RETRY_SLEEP_MSEC", "1"}}};
}

void LostPeer::connect_ranks(const Environment& environment) {
  sender_ = near_endpoint({.fresh = true, .environment = environment});
  receiver_ = far_endpoint({.fresh = true, .environment = environment});
  connection_ = connect_and_deliver(*sender_, *receiver_, random()());
  from_ = allocate(sender_->rank, connection_->send, kMessages * kSize);
  to_ = allocate(receiver_->rank, connection_->receive, kMessages * kSize);
  receives_ = post_ahead(connection_->receive, *to_, kSize, kMessages);
}

std::optional<PointerOutcome> LostPeer::post_send(std::size_t index) {
  StallLimit limit = detection_limit();
  while (!limit.expired()) {
    PointerOutcome outcome = connection_->send.try_isend(from_->buffer(index * kSize, kSize));
    if (!outcome.ok() || outcome.value != 0) return outcome;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

Outcome LostPeer::send_until_error(std::string_view event, std::vector<Request> requests, std::size_t first) {
  StallLimit limit = detection_limit();
  for (std::size_t i = 0; first + i < receives_.size(); ++i) {
    if (i == requests.size()) {
      const auto sent = post_send(first + i);
      expect(sent.has_value(),
             fmt::format("rank {}: isend still returned no request {} s after {}, expected a request or an error",
                         sender_->rank.name(), limit.seconds(), event));
      if (!sent->ok()) return *sent;
      requests.push_back(connection_->send.request(sent->value));
    }
    for (;;) {
      const TestOutcome outcome = requests[i].try_test();
      if (!outcome.ok()) return outcome;
      if (outcome.done == 1) break;
      expect(!limit.expired(), fmt::format("rank {}: test still wrote *done = 0 {} s after {}, expected an error",
                                           sender_->rank.name(), limit.seconds(), event));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  broken(fmt::format("rank {}: test completed {} of {} bytes although {} before they arrived, expected an error",
                     sender_->rank.name(), counted(requests.size(), "send"), kSize, event));
}

void LostPeer::check_code(const Outcome& outcome, std::string_view event) {
  observe(fmt::format("the error after {} was {}", event, result_name(outcome.code)));
  should(outcome.code == kSystemError || outcome.code == kRemoteError,
         fmt::format("{} returned {} after {}, expected ncclSystemError or ncclRemoteError", outcome.call,
                     result_name(outcome.code), event));
}

}  // namespace plugfest::conformance
