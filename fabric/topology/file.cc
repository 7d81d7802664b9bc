#include "fabric/topology/file.h"

#include <fmt/format.h>

#include <yaml-cpp/yaml.h>
#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/system/yaml_file.h"
#include "fabric/topology/builder.h"
#include "fabric/topology/quantity.h"

namespace plugfest::topology {
namespace {

class File : YamlFile {
 public:
  explicit File(const std::filesystem::path& path) : YamlFile("topology", path) {}

  Graph read() {
    const YAML::Node root = load();
    require_map(root, "topology");
    require_known(root, "topology", {"defaults", "hosts", "switches", "links"});
    if (const YAML::Node defaults = root["defaults"]) {
      require_map(defaults, "defaults");
      require_known(defaults, "defaults", {"mtu", "rate", "delay"});
      defaults_ = link_parameters(defaults, "defaults", {});
    }
    for (const YAML::Node& host : list(root, "topology", "hosts")) read_host(host);
    if (graph_.hosts.empty()) fail(root["hosts"], "hosts: expected at least one");
    if (root["switches"])
      for (const YAML::Node& node : list(root, "topology", "switches")) read_switch(node);
    const YAML::Node links = list(root, "topology", "links");
    for (const YAML::Node& link : links) reserve_subnet(link);
    for (const YAML::Node& link : links) read_link(link);
    graph_.name = path();
    return std::move(graph_);
  }

 private:
  LinkParameters link_parameters(const YAML::Node& map, const std::string& what, LinkParameters parameters) const {
    if (const YAML::Node mtu = map["mtu"]) parameters.mtu_bytes = parsed(mtu, what + " mtu", parse_mtu);
    if (const YAML::Node rate = map["rate"]) parameters.rate_bits_per_second = parsed(rate, what + " rate", parse_rate);
    if (const YAML::Node delay = map["delay"]) parameters.delay_us = parsed(delay, what + " delay", parse_delay);
    return parameters;
  }

  // Reads an unused name that is valid in full interface names ("a.eth0") and in labels.
  std::string new_name(const YAML::Node& node, std::string_view what) const {
    std::string name = scalar(node, what);
    const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; };
    if (name.empty() || std::isalpha(static_cast<unsigned char>(name[0])) == 0 ||
        !std::all_of(name.begin(), name.end(), fits))
      fail(node, fmt::format("{} \"{}\": expected a letter, then letters, digits, - or _", what, name));
    if (nodes_.count(name) != 0) fail(node, fmt::format("{} \"{}\": the name is in use", what, name));
    return name;
  }

  void read_host(const YAML::Node& node) {
    const std::string name = new_name(node, "host");
    nodes_[name] = add_host(graph_, name);
  }

  void read_switch(const YAML::Node& node) {
    require_map(node, "switch");
    require_known(node, "switch", {"name", "kind", "subnet", "tier"});
    const std::string name = new_name(required(node, "switch", "name"), "switch");
    SwitchKind kind = SwitchKind::kBridge;
    if (const YAML::Node field = node["kind"]) {
      const std::string text = scalar(field, "switch kind");
      if (text != "bridge" && text != "router")
        fail(field, fmt::format("switch kind \"{}\": expected bridge or router", text));
      if (text == "router") kind = SwitchKind::kRouter;
    }
    int tier = 1;
    if (const YAML::Node field = node["tier"])
      tier = parsed(field, "switch tier", [](std::string_view text) { return parse_count(text, 1, 9); });
    if (kind == SwitchKind::kBridge) {
      const YAML::Node field = required(node, "switch", "subnet");
      subnet_of_bridge_[name] = parsed(field, "switch subnet", parse_subnet);
      take_subnet(field, subnet_of_bridge_[name], "switch");
    } else if (node["subnet"]) {
      fail(node["subnet"], "switch subnet: only bridges have one; set it on the links of the router");
    }
    nodes_[name] = add_switch(graph_, name, kind, tier);
  }

  // Reserves the subnets that the file names, so that links without a subnet do not get one of them.
  void reserve_subnet(const YAML::Node& node) {
    require_map(node, "link");
    for (const char* fault : {"loss", "drop"})
      if (node[fault])
        fail(node[fault], fmt::format("link {}: is a fault, not a topology: use --faults loss=1%", fault));
    require_known(node, "link", {"ends", "subnet", "mtu", "rate", "delay"});
    const YAML::Node field = node["subnet"];
    if (field) take_subnet(field, parsed(field, "link subnet", parse_subnet), "link");
  }

  void read_link(const YAML::Node& node) {
    const YAML::Node ends = required(node, "link", "ends");
    if (!ends.IsSequence() || ends.size() != 2) fail(ends, "link ends: expected two names, as in [a, b]");
    std::vector<std::string> names;
    for (const YAML::Node& end : ends) {
      names.push_back(scalar(end, "link ends"));
      if (nodes_.count(names.back()) == 0) fail(end, fmt::format("link ends: no host or switch \"{}\"", names.back()));
    }
    if (names[0] == names[1]) fail(ends, fmt::format("link ends: both ends are {}", names[0]));

    const Subnet* of_bridge = nullptr;
    for (const std::string& name : names) {
      const auto bridge = subnet_of_bridge_.find(name);
      if (bridge == subnet_of_bridge_.end()) continue;
      if (of_bridge != nullptr && *of_bridge != bridge->second)
        fail(ends, fmt::format("link ends: the bridges have different subnets, {} and {}", of_bridge->text(),
                               bridge->second.text()));
      of_bridge = &bridge->second;
    }
    Subnet subnet;
    if (const YAML::Node field = node["subnet"]) {
      if (of_bridge != nullptr)
        fail(field, "link subnet: a link of a bridge has the bridge's subnet: remove the field");
      subnet = parsed(field, "link subnet", parse_subnet);
    } else {
      subnet = of_bridge != nullptr ? *of_bridge : next_free_subnet();
    }
    const LinkParameters parameters = link_parameters(node, "link", defaults_);
    const auto is_host = [&](const std::string& name) { return nodes_.at(name).kind == LinkEnd::Node::kHost; };
    if (node["delay"] && std::none_of(names.begin(), names.end(), is_host))
      fail(node["delay"],
           "link delay: only NICs of hosts delay packets and both ends are switches: set it on links of hosts");
    try {
      connect(graph_, nodes_.at(names[0]), nodes_.at(names[1]), subnet, parameters);
    } catch (const std::runtime_error& error) {
      fail(node, fmt::format("link: {}", error.what()));
    }
  }

  static bool overlap(const Subnet& a, const Subnet& b) { return a.contains(b.network) || b.contains(a.network); }

  void take_subnet(const YAML::Node& at, const Subnet& subnet, std::string_view what) {
    if (overlap(subnet, kOutOfBandSubnet))
      fail(at, fmt::format("{} subnet {}: overlaps {}, which is reserved for the out-of-band network", what,
                           subnet.text(), kOutOfBandSubnet.text()));
    for (const Subnet& other : reserved_) {
      // Connected bridges share a subnet.
      if (!overlap(subnet, other) || (what == "switch" && subnet == other)) continue;
      fail(at, fmt::format("{} subnet {}: overlaps {}", what, subnet.text(), other.text()));
    }
    reserved_.push_back(subnet);
  }

  Subnet next_free_subnet() {
    const auto is_taken = [&](const Subnet& subnet) {
      return std::any_of(reserved_.begin(), reserved_.end(),
                         [&](const Subnet& other) { return overlap(subnet, other); });
    };
    while (is_taken(next_)) next_.network.value += 4;
    const Subnet subnet = next_;
    next_.network.value += 4;
    return subnet;
  }

  Graph graph_;
  LinkParameters defaults_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, Subnet> subnet_of_bridge_;
  std::vector<Subnet> reserved_;
  Subnet next_ = {{10u << 24}, 30};
};

}  // namespace

Graph read_topology(const std::filesystem::path& path) { return File(path).read(); }

}  // namespace plugfest::topology
