// The control messages of the manager, ranks and nodes: one JSON object for each line.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/reduction/control_link.h"
#include "fabric/reduction/trees.h"

namespace plugfest::reduction {

/// Codes of refusals, as in the SHARP API.
enum class Refusal : int {
  kGroupJoin = -6,    ///< SHARP_COLL_EGROUP_JOIN: the rank has joined already
  kQuota = -7,        ///< SHARP_COLL_EQUOTA
  kInvalid = -10,     ///< SHARP_COLL_EINVAL: a bad request
  kNoTree = -13,      ///< SHARP_COLL_ENOTREE
  kGroupId = -14,     ///< SHARP_COLL_EGROUP_ID: no such group
  kLockTaken = -18,   ///< SHARP_COLL_ELOCK_FAILED: another group has the streaming lock (SAT) of the tree
  kNoResource = -20,  ///< SHARP_COLL_ENO_RESOURCE: an aggregation node has ended
};

/// A request that the manager refuses.
struct Refused : std::runtime_error {
  Refused(Refusal refusal, const std::string& reason) : std::runtime_error(reason), code(refusal) {}
  Refusal code;
};

/// A request to create a group.
struct CreateRequest {
  bool is_streaming = false;  ///< SAT instead of LLT
  std::uint32_t osts = 0;     ///< outstanding operations that the job asks for; 0: the manager's choice
  std::vector<RankSocket> ranks;
};

/// Errors: Refused with kInvalid.
CreateRequest parse_create(const nlohmann::json& message);

/// "10.0.0.1" and so on; nullopt if it is not an IPv4 address.
std::optional<topology::Ipv4Address> parse_address(const std::string& text);

/// The member `name` of an object as an integer from `least` to `most`; nullopt if it is none.
std::optional<std::uint64_t> integer_of(const nlohmann::json& object, const char* name, std::uint64_t least,
                                        std::uint64_t most);
/// The member `name` of an object as text; "" if it is none.
std::string text_of(const nlohmann::json& object, const char* name);

nlohmann::json refused(Refusal code, const std::string& reason);

/// {"address": …, "port": …, "local": …}
nlohmann::json to_json(const Peer& peer);
/// nullopt if the object is not a peer.
std::optional<Peer> parse_peer(const nlohmann::json& object);

}  // namespace plugfest::reduction
