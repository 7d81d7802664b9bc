// The control messages of the manager, ranks and nodes: one JSON object for each line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/reduction/trees.h"

namespace plugfest::reduction {

/// The TCP port of the manager.
inline constexpr std::uint16_t kControlPort = 4794;

/// The environment variable that names the manager to ranks, as ADDRESS:PORT.
inline constexpr const char* kManagerVariable = "PLUGFEST_SHARP_MANAGER";

/// The longest line that the manager accepts.
inline constexpr std::size_t kMostLineBytes = 64 << 10;

/// Codes of refusals: those of the SHARP API.
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

/// Cuts a byte stream into lines. Thread safety: none.
class LineReader {
 public:
  explicit LineReader(std::size_t most_bytes = kMostLineBytes) : most_bytes_(most_bytes) {}

  /// Adds received bytes. Returns false if a line is too long; the reader must not be used then.
  bool add(std::string_view bytes);
  /// The next complete line without its end; nullopt if none is complete.
  std::optional<std::string> next();

 private:
  std::size_t most_bytes_;
  std::string received_;
};

/// A request to create a group.
struct CreateRequest {
  bool is_streaming = false;  ///< SAT instead of LLT
  std::uint32_t osts = 0;     ///< outstanding operations that the job asks for; 0: the manager's choice
  std::vector<RankSocket> ranks;
};

/// Errors: Refused with kInvalid.
CreateRequest parse_create(const nlohmann::json& message);

/// "10.0.0.1" and so on; nullopt if it is no IPv4 address.
std::optional<topology::Ipv4Address> parse_address(const std::string& text);

/// The member `name` of an object as an integer from `least` to `most`; nullopt if it is none.
std::optional<std::uint64_t> integer_of(const nlohmann::json& object, const char* name, std::uint64_t least,
                                        std::uint64_t most);
/// The member `name` of an object as text; "" if it is none.
std::string text_of(const nlohmann::json& object, const char* name);

nlohmann::json refused(Refusal code, const std::string& reason);

/// {"address": …, "port": …, "local": …}
nlohmann::json to_json(const Peer& peer);
/// nullopt if the object is no peer.
std::optional<Peer> parse_peer(const nlohmann::json& object);

}  // namespace plugfest::reduction
