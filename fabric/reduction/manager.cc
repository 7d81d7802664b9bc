#include "fabric/reduction/manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "fabric/reduction/packet.h"

namespace plugfest::reduction {
namespace {

using nlohmann::json;

constexpr int kHeaderBytes = 20 + 8 + static_cast<int>(kPacketHeaderBytes);  // IPv4, UDP, packet
constexpr int kMaxPayloadBytes = 8192;  // with the headers, less than the default MTU of links
constexpr std::uint64_t kMaxGroup = std::numeric_limits<std::uint32_t>::max();

// A multiple of 8 bytes, so that no element of any type is split.
int payload_of(int mtu_bytes) { return std::min(kMaxPayloadBytes, (mtu_bytes - kHeaderBytes) / 8 * 8); }

json configuration(std::uint32_t number, const GroupNode& node, std::uint32_t fragment_window, int max_payload) {
  json children = json::array();
  for (const Peer& child : node.children) children.push_back(to_json(child));
  json message = {{"type", "configure"},
                  {"group", number},
                  {"window", fragment_window},
                  {"max_payload", max_payload},
                  {"children", std::move(children)}};
  if (node.parent) {
    message["parent"] = to_json(*node.parent);
    message["child"] = node.child_of_parent;
  }
  return message;
}

}  // namespace

Manager::Manager(Trees trees, Quota quota) : trees_(std::move(trees)), quota_(quota) {}

void Manager::throw_protocol_error(const std::string& reason) { throw std::runtime_error(reason); }

void Manager::send(ConnectionId to, json message, bool closes) {
  outgoing_.push_back({to, std::move(message), closes});
}

std::vector<Outgoing> Manager::receive(ConnectionId from, std::string_view line, bool is_local) {
  try {
    const json message = json::parse(line, nullptr, false);
    if (!message.is_object()) throw_protocol_error("expected one JSON object in each line");
    handle(from, message, is_local);
  } catch (const Refused& refusal) {
    send(from, refused(refusal.code, refusal.what()));
  } catch (const std::exception& error) {
    send(from, {{"type", "error"}, {"reason", error.what()}}, true);
  }
  return std::exchange(outgoing_, {});
}

void Manager::handle(ConnectionId from, const json& message, bool is_local) {
  const std::string type = text_of(message, "type");
  if (type == "node") return add_node(from, message, is_local);
  if (type == "create") return create(from, message);
  if (type == "join") return join(from, message);
  if (type == "leave") return leave(from, message.value("unfinished", false));
  if (type == "configured") return configured(from, message);
  if (type == "report") return report(from, message, is_local);
  throw_protocol_error("type: expected create, join or leave");
}

void Manager::add_node(ConnectionId from, const json& message, bool is_local) {
  if (!is_local) throw_protocol_error("aggregation nodes are started with the fabric");
  const std::string name = text_of(message, "switch");
  const auto& switches = trees_.graph().switches;
  const auto node = std::find_if(switches.begin(), switches.end(), [&](const auto& each) { return each.name == name; });
  if (node == switches.end()) throw_protocol_error(fmt::format("node: no switch is named \"{}\"", name));
  if (!nodes_.try_emplace(static_cast<std::size_t>(node - switches.begin()), from).second)
    throw_protocol_error(fmt::format("node: switch {} has a node already", name));
}

Manager::Nodes::iterator Manager::node_of(ConnectionId connection) {
  return std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) { return entry.second == connection; });
}

// The group that a connection has created or joined.
Manager::Groups::iterator Manager::group_of(ConnectionId connection) {
  return std::find_if(groups_.begin(), groups_.end(), [&](const auto& entry) {
    return entry.second.creator == connection || entry.second.members.contains(connection);
  });
}

void Manager::create(ConnectionId from, const json& message) {
  const CreateRequest request = parse_create(message);
  if (group_of(from) != groups_.end())
    throw Refused(Refusal::kInvalid, "create: this connection has a group already: use another one");
  std::string reason;
  const std::optional<GroupTree> tree = trees_.connect(request.ranks, reason);
  if (!tree) throw Refused(Refusal::kNoTree, reason);
  std::size_t groups_of_tree = 0;
  for (const auto& [number, group] : groups_) {
    if (group.tree != tree->tree) continue;
    ++groups_of_tree;
    if (request.is_streaming && group.is_streaming)
      throw Refused(Refusal::kLockTaken, fmt::format("group {} holds the SAT lock of tree {}: use the low-latency tree "
                                                     "(SHARP_COLL_ENABLE_SAT=0) or wait until it ends",
                                                     number, tree->tree + 1));
  }
  if (groups_of_tree >= quota_.groups)
    throw Refused(Refusal::kQuota, fmt::format("tree {} has {} groups, its quota: end another communicator first",
                                               tree->tree + 1, groups_of_tree));
  if (request.osts > quota_.osts)
    throw Refused(Refusal::kQuota, fmt::format("the group requests {} OSTs, and the quota of a group is {}: "
                                               "lower SHARP_COLL_JOB_QUOTA_OSTS",
                                               request.osts, quota_.osts));
  const int max_payload = payload_of(tree->mtu_bytes);
  if (max_payload < 8)
    throw Refused(Refusal::kNoTree, fmt::format("an MTU of {} bytes holds no packet: raise it", tree->mtu_bytes));
  for (const GroupNode& node : tree->nodes)
    if (!nodes_.contains(node.index))
      throw Refused(Refusal::kNoResource,
                    fmt::format("aggregation node {} has ended: restart the fabric", name_of(node.index)));

  const std::uint32_t number = ++last_group_;
  const std::uint32_t fragment_window = request.osts != 0 ? request.osts : quota_.osts;
  Group group;
  group.tree = tree->tree;
  group.is_streaming = request.is_streaming;
  group.ranks = request.ranks.size();
  group.creator = from;
  group.unconfigured = tree->nodes.size();
  group.joined.resize(group.ranks);
  json ranks = json::array();
  for (const RankNode& rank : tree->ranks)
    ranks.push_back({{"address", rank.address.text()}, {"port", kDataPort}, {"child", rank.child}});
  group.created = {{"type", "created"},          {"group", number},
                   {"tree", tree->tree + 1},     {"window", fragment_window},
                   {"max_payload", max_payload}, {"nodes", std::move(ranks)}};
  for (const GroupNode& node : tree->nodes) {
    group.nodes.push_back(node.index);
    send(nodes_.at(node.index), configuration(number, node, fragment_window, max_payload));
  }
  groups_.emplace(number, std::move(group));
}

// A node has accepted a configuration. The creator gets its answer when all nodes have.
void Manager::configured(ConnectionId from, const json& message) {
  if (node_of(from) == nodes_.end()) throw_protocol_error("configured: not a node");
  const auto number = integer_of(message, "group", 1, kMaxGroup);
  const auto group = number ? groups_.find(static_cast<std::uint32_t>(*number)) : groups_.end();
  if (group == groups_.end()) return;  // it has failed meanwhile
  if (const std::string error = text_of(message, "error"); !error.empty()) return fail(group, error);
  if (group->second.unconfigured > 0 && --group->second.unconfigured == 0)
    send(group->second.creator, std::exchange(group->second.created, nullptr));
}

// Passes the question of a local connection to all nodes, and the answer of a node to the connection that asked.
void Manager::report(ConnectionId from, json message, bool is_local) {
  const auto node = node_of(from);
  if (node != nodes_.end()) {
    const auto asker = integer_of(message, "asker", 1, std::numeric_limits<std::uint64_t>::max());
    if (!asker) throw_protocol_error("report: a node's answer names no asker");
    message.erase("asker");
    message["switch"] = name_of(node->first);
    return send(*asker, std::move(message));
  }
  if (!is_local) throw_protocol_error("report: only plugfest fabric show asks for reports");
  send(from, {{"type", "reporting"}, {"nodes", nodes_.size()}});
  for (const auto& [index, connection] : nodes_) send(connection, {{"type", "report"}, {"asker", from}});
}

void Manager::join(ConnectionId from, const json& message) {
  const auto number = integer_of(message, "group", 1, kMaxGroup);
  if (!number) throw Refused(Refusal::kInvalid, "join: group: expected a number");
  const auto group = groups_.find(static_cast<std::uint32_t>(*number));
  if (group == groups_.end() || group->second.unconfigured > 0)
    throw Refused(
        Refusal::kGroupId,
        fmt::format("join: there is no group {}: it has ended, or its switches are not configured yet", *number));
  const auto rank = integer_of(message, "rank", 0, group->second.ranks - 1);
  if (!rank)
    throw Refused(Refusal::kInvalid,
                  fmt::format("join: rank: expected a number from 0 to {}", group->second.ranks - 1));
  const auto current = group_of(from);
  if (current != groups_.end() && (current != group || group->second.members.contains(from)))
    throw Refused(Refusal::kGroupJoin, "join: this connection has joined a group already");
  if (group->second.joined[*rank])
    throw Refused(Refusal::kGroupJoin, fmt::format("join: rank {} has joined already", *rank));
  group->second.joined[*rank] = true;
  group->second.members.emplace(from, *rank);
  send(from, {{"type", "joined"}});
}

// `unfinished`: the rank leaves during an operation, which cannot complete on the others.
void Manager::leave(ConnectionId from, bool unfinished) {
  // The rank waits for this, so that its next group finds the SAT lock free.
  send(from, {{"type", "left"}});
  const auto group = group_of(from);
  if (group == groups_.end()) return;  // it has failed, and the rank did not know yet
  const auto member = group->second.members.extract(from);
  if (group->second.creator == from) group->second.creator = 0;
  if (unfinished && member && !group->second.members.empty())
    return fail(group, fmt::format("rank {} left during an operation", member.mapped()));
  // Ranks that have not joined yet find no group when they do.
  if (group->second.members.empty() && group->second.creator == 0) remove(group);
}

// Tells all ranks that a group has failed, and removes it.
void Manager::fail(Groups::iterator entry, const std::string& reason) {
  const auto& [number, group] = *entry;
  if (!group.created.is_null() && group.creator != 0) {
    send(group.creator, refused(Refusal::kNoResource, reason));
  } else {
    const json message = {
        {"type", "failed"}, {"group", number}, {"reason", fmt::format("group {}: {}", number, reason)}};
    for (const auto& [connection, rank] : group.members) send(connection, message);
    if (group.creator != 0 && !group.members.contains(group.creator)) send(group.creator, message);
  }
  remove(entry);
}

void Manager::remove(Groups::iterator group) {
  for (const std::size_t node : group->second.nodes)
    if (const auto connection = nodes_.find(node); connection != nodes_.end())
      send(connection->second, {{"type", "remove"}, {"group", group->first}});
  groups_.erase(group);
}

std::vector<Outgoing> Manager::closed(ConnectionId connection) {
  const auto node = node_of(connection);
  if (node != nodes_.end()) {
    const std::size_t index = node->first;
    nodes_.erase(node);
    for (auto group = groups_.begin(); group != groups_.end();) {
      const auto next = std::next(group);
      const std::vector<std::size_t>& used = group->second.nodes;
      if (std::find(used.begin(), used.end(), index) != used.end())
        fail(group, fmt::format("aggregation node {} has ended", name_of(index)));
      group = next;
    }
  }
  if (const auto entry = group_of(connection); entry != groups_.end()) {
    Group& group = entry->second;
    const auto member = group.members.find(connection);
    const std::string who = member != group.members.end() ? fmt::format("rank {}", member->second) : "the creator";
    if (member != group.members.end()) group.members.erase(member);
    if (group.creator == connection) group.creator = 0;
    fail(entry, who + " has ended without leaving");
  }
  std::erase_if(outgoing_, [&](const Outgoing& outgoing) { return outgoing.to == connection; });
  return std::exchange(outgoing_, {});
}

}  // namespace plugfest::reduction
