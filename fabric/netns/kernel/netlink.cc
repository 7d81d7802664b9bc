#include "fabric/netns/kernel/netlink.h"

#include <fmt/format.h>
#include <linux/netlink.h>
#include <netlink/attr.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace plugfest::netns {
namespace {

// The answers to one batch must fit into the receive buffer of 212992 bytes, in which each takes about 1 KiB.
constexpr std::size_t kBatch = 64;

// The text of the errno, and the kernel's own message if the answer contains one.
std::string reason_of(const nlmsghdr* header, const nlmsgerr* error) {
  std::string reason = std::strerror(-error->error);
  if ((header->nlmsg_flags & NLM_F_ACK_TLVS) != 0) {
    // The attributes follow a copy of the request, or of its header alone if the answer is capped.
    std::size_t offset = sizeof(nlmsgerr);
    if ((header->nlmsg_flags & NLM_F_CAPPED) == 0) offset += NLMSG_ALIGN(error->msg.nlmsg_len) - sizeof(nlmsghdr);
    if (NLMSG_LENGTH(offset) <= header->nlmsg_len) {
      const char* payload = static_cast<const char*>(nlmsg_data(header));
      auto* attributes = reinterpret_cast<nlattr*>(const_cast<char*>(payload + offset));
      const int length = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(offset));
      if (const nlattr* message = nla_find(attributes, length, NLMSGERR_ATTR_MSG)) {
        reason += fmt::format(" ({})", nla_get_string(message));
      }
    }
  }
  return reason;
}

}  // namespace

Netlink::Netlink() : socket_(nl_socket_alloc(), nl_socket_free) {
  if (!socket_) throw std::bad_alloc();
  if (const int error = nl_connect(socket_.get(), NETLINK_ROUTE); error < 0) {
    throw std::runtime_error(fmt::format("cannot open a netlink socket: {}", nl_geterror(error)));
  }
  // Asks for error messages, and for answers without a copy of the request. Older kernels ignore both options.
  const int on = 1;
  setsockopt(nl_socket_get_fd(socket_.get()), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
  setsockopt(nl_socket_get_fd(socket_.get()), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
}

void Netlink::add(Request request) {
  queue_.push_back(std::move(request));
  if (queue_.size() == kBatch) flush();
}

void Netlink::flush() {
  if (queue_.empty()) return;
  const std::vector<Request> sent = std::exchange(queue_, {});
  std::string batch;
  std::uint32_t first_number = 0;
  for (const Request& request : sent) {
    nl_complete_msg(socket_.get(), request.message.get());
    const nlmsghdr* header = nlmsg_hdr(request.message.get());
    if (batch.empty()) first_number = header->nlmsg_seq;
    batch.append(reinterpret_cast<const char*>(header), header->nlmsg_len);
    batch.resize(NLMSG_ALIGN(batch.size()));
  }
  if (const int error = nl_sendto(socket_.get(), batch.data(), batch.size()); error < 0) {
    throw std::runtime_error(fmt::format("{}: netlink: {}", sent.front().purpose, nl_geterror(error)));
  }

  std::string refused;
  for (std::size_t answered = 0; answered < sent.size();) {
    sockaddr_nl from = {};
    unsigned char* buffer = nullptr;
    int length = nl_recv(socket_.get(), &from, &buffer, nullptr);
    const std::unique_ptr<unsigned char, decltype(&std::free)> owner(buffer, std::free);
    if (length <= 0) {
      throw std::runtime_error(fmt::format("{}: netlink: {}", sent.front().purpose, nl_geterror(length)));
    }
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); nlmsg_ok(header, length);
         header = nlmsg_next(header, &length)) {
      if (header->nlmsg_type != NLMSG_ERROR) continue;
      ++answered;
      const auto* error = static_cast<const nlmsgerr*>(nlmsg_data(header));
      if (error->error != 0 && refused.empty()) {
        refused = fmt::format("{}: {}", sent.at(header->nlmsg_seq - first_number).purpose, reason_of(header, error));
      }
    }
  }
  if (!refused.empty()) throw std::runtime_error(refused);
}

}  // namespace plugfest::netns
