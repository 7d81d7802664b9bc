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

// Adds the rate of a queueing discipline, if it is a tbf at the root of its interface.
void add_rate(const nlmsghdr& message, std::map<int, int>& rates_mbps) {
  const auto* discipline = static_cast<const tcmsg*>(NLMSG_DATA(&message));
  if (message.nlmsg_type != RTM_NEWQDISC || message.nlmsg_len < NLMSG_LENGTH(sizeof(*discipline)) ||
      discipline->tcm_parent != TC_H_ROOT)
    return;
  bool is_tbf = false;
  std::string_view options;
  for_each_attribute(TCA_RTA(discipline), TCA_PAYLOAD(&message), [&](int type, std::string_view value) {
    if (type == TCA_KIND) is_tbf = value == std::string_view("tbf", 4);  // with its final 0
    if (type == TCA_OPTIONS) options = value;
  });
  const std::uint64_t mbps = is_tbf ? bytes_per_second(options) / (1'000'000 / 8) : 0;
  if (mbps > 0)
    rates_mbps[discipline->tcm_ifindex] =
        static_cast<int>(std::min<std::uint64_t>(mbps, std::numeric_limits<int>::max()));
}

}  // namespace

std::map<int, int> rate_limits_mbps() {
  std::map<int, int> rates_mbps;
  const Descriptor netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!netlink) return rates_mbps;
  struct {
    nlmsghdr header;
    tcmsg discipline;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETQDISC;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  if (send(netlink.get(), &request, sizeof(request), 0) < 0) return rates_mbps;
  alignas(nlmsghdr) char answer[32768];
  while (true) {
    const ssize_t received = recv(netlink.get(), answer, sizeof(answer), 0);
    if (received <= 0) return rates_mbps;
    auto length = static_cast<std::size_t>(received);
    for (auto* message = reinterpret_cast<nlmsghdr*>(answer); NLMSG_OK(message, length);
         message = NLMSG_NEXT(message, length)) {
      if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return rates_mbps;
      add_rate(*message, rates_mbps);
    }
  }
}

}  // namespace plugfest::roce::verbs
