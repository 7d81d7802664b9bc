#include "fabric/roce/verbs/device/rate_limit.h"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "fabric/system/file.h"

namespace plugfest::roce::verbs {
namespace {

// Calls `visit` with the type and the value of each attribute.
template <typename Visit>
void for_each_attribute(const rtattr* attribute, std::size_t length, Visit visit) {
  for (; RTA_OK(attribute, length); attribute = RTA_NEXT(attribute, length)) {
    const auto* value = static_cast<const char*>(RTA_DATA(attribute));
    visit(attribute->rta_type & NLA_TYPE_MASK, std::string_view(value, RTA_PAYLOAD(attribute)));
  }
}

std::uint64_t bytes_per_second(std::string_view options) {
  std::uint64_t rate = 0;
  for_each_attribute(reinterpret_cast<const rtattr*>(options.data()), options.size(),
                     [&](int type, std::string_view value) {
                       if (type == TCA_TBF_PARMS && value.size() >= sizeof(tc_tbf_qopt) && rate == 0) {
                         tc_tbf_qopt parameters = {};
                         std::memcpy(&parameters, value.data(), sizeof(parameters));
                         rate = parameters.rate.rate;
                       }
                       // Rates of 2^32 bytes per second and more, which tc_tbf_qopt cannot hold.
                       if (type == TCA_TBF_RATE64 && value.size() == sizeof(rate))
                         std::memcpy(&rate, value.data(), sizeof(rate));
                     });
  return rate;
}

// The rate of one queueing discipline in bytes per second; 0 unless it is the interface's root and a tbf.
std::uint64_t rate_of(const nlmsghdr& message, int interface_index) {
  const auto* discipline = static_cast<const tcmsg*>(NLMSG_DATA(&message));
  if (message.nlmsg_type != RTM_NEWQDISC || message.nlmsg_len < NLMSG_LENGTH(sizeof(*discipline)) ||
      discipline->tcm_ifindex != interface_index || discipline->tcm_parent != TC_H_ROOT)
    return 0;
  bool is_tbf = false;
  std::string_view options;
  for_each_attribute(TCA_RTA(discipline), TCA_PAYLOAD(&message), [&](int type, std::string_view value) {
    if (type == TCA_KIND) is_tbf = value == std::string_view("tbf", 4);  // with its final 0
    if (type == TCA_OPTIONS) options = value;
  });
  return is_tbf ? bytes_per_second(options) : 0;
}

}  // namespace

int rate_limit_mbps(int interface_index) {
  const Descriptor netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!netlink) return 0;
  struct {
    nlmsghdr header;
    tcmsg discipline;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETQDISC;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.discipline.tcm_ifindex = interface_index;
  if (send(netlink.get(), &request, sizeof(request), 0) < 0) return 0;
  alignas(nlmsghdr) char answer[32768];
  while (true) {
    const ssize_t received = recv(netlink.get(), answer, sizeof(answer), 0);
    if (received <= 0) return 0;
    auto length = static_cast<std::size_t>(received);
    for (auto* message = reinterpret_cast<nlmsghdr*>(answer); NLMSG_OK(message, length);
         message = NLMSG_NEXT(message, length)) {
      if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return 0;
      const std::uint64_t mbps = rate_of(*message, interface_index) / (1'000'000 / 8);
      if (mbps > 0) return static_cast<int>(std::min<std::uint64_t>(mbps, std::numeric_limits<int>::max()));
    }
  }
}

}  // namespace plugfest::roce::verbs
