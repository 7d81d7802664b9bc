#include "fabric/reduction/messages.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <limits>
#include <set>

namespace plugfest::reduction {

using nlohmann::json;

std::optional<topology::Ipv4Address> parse_address(const std::string& text) {
  in_addr address = {};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) return std::nullopt;
  return topology::Ipv4Address{ntohl(address.s_addr)};
}

std::optional<std::uint64_t> integer_of(const json& object, const char* name, std::uint64_t least, std::uint64_t most) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_number_unsigned()) return std::nullopt;
  const auto value = member->get<std::uint64_t>();
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

std::string text_of(const json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : std::string();
}

json refused(Refusal code, const std::string& reason) {
  return {{"type", "refused"}, {"code", static_cast<int>(code)}, {"reason", reason}};
}

CreateRequest parse_create(const json& message) {
  CreateRequest request;
  if (!integer_of(message, "job", 0, std::numeric_limits<std::uint64_t>::max()))
    throw Refused(Refusal::kInvalid, "create: job: expected a number from 0");
  const std::string mode = text_of(message, "mode");
  if (mode != "llt" && mode != "sat") throw Refused(Refusal::kInvalid, "create: mode: expected llt or sat");
  request.is_streaming = mode == "sat";
  if (message.contains("osts")) {
    constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
    const auto osts = integer_of(message, "osts", 1, kMax);
    if (!osts) throw Refused(Refusal::kInvalid, fmt::format("create: osts: expected a number from 1 to {}", kMax));
    request.osts = static_cast<std::uint32_t>(*osts);
  }
  const auto ranks = message.find("ranks");
  if (ranks == message.end() || !ranks->is_array() || ranks->empty())
    throw Refused(Refusal::kInvalid, "create: ranks: expected a list of {address, port}");
  std::set<RankSocket> seen;
  for (const json& rank : *ranks) {
    const auto address = parse_address(text_of(rank, "address"));
    const auto port = integer_of(rank, "port", 1, 65535);
    if (!address || !port)
      throw Refused(Refusal::kInvalid,
                    fmt::format("create: rank {}: expected an IPv4 address and a port", request.ranks.size()));
    const RankSocket socket = {*address, static_cast<std::uint16_t>(*port)};
    if (!seen.insert(socket).second)
      throw Refused(Refusal::kInvalid, fmt::format("create: rank {}: {}:{} is also the address of another rank",
                                                   request.ranks.size(), address->text(), *port));
    request.ranks.push_back(socket);
  }
  return request;
}

json to_json(const Peer& peer) {
  return {{"address", peer.socket.address.text()}, {"port", peer.socket.port}, {"local", peer.local.text()}};
}

std::optional<Peer> parse_peer(const json& object) {
  if (!object.is_object()) return std::nullopt;
  const auto address = parse_address(text_of(object, "address"));
  const auto local = parse_address(text_of(object, "local"));
  const auto port = integer_of(object, "port", 1, 65535);
  if (!address || !local || !port) return std::nullopt;
  return Peer{{*address, static_cast<std::uint16_t>(*port)}, *local};
}

}  // namespace plugfest::reduction
