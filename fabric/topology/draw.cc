#include "fabric/topology/draw.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "fabric/topology/quantity.h"

namespace plugfest::topology {
namespace {

// Quotes and escapes text. The name of a graph may be a file path with arbitrary characters.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string label(const Link& link) {
  std::string text = link.subnet.text();
  if (link.rate_bits_per_second > 0) text += "\\n" + rate_text(link.rate_bits_per_second);
  if (link.delay_us > 0) text += "\\n" + delay_text(link.delay_us);
  return text;
}

std::string same_rank(const std::vector<std::string>& names) {
  std::string text = "  { rank=same;";
  for (const std::string& name : names) text += " " + quoted(name) + ";";
  return text + " }\n";
}

}  // namespace

std::string to_dot(const Graph& graph) {
  std::string dot = fmt::format("graph {} {{\n", quoted(graph.name));
  // Without switches the hosts form a circle.
  dot += graph.switches.empty() ? "  graph [layout=circo, mindist=2.0];\n" : "  graph [nodesep=0.4, ranksep=1.0];\n";
  dot += "  node [fontname=\"sans-serif\", style=filled];\n";
  dot += "  edge [fontname=\"sans-serif\", fontsize=9];\n";

  std::map<int, std::vector<std::string>, std::greater<>> tiers;
  for (const Switch& one : graph.switches) tiers[one.tier].push_back(one.name);
  for (const Host& host : graph.hosts) tiers[0].push_back(host.name);
  for (const Switch& one : graph.switches) {
    const char* look =
        one.kind == SwitchKind::kRouter ? "shape=ellipse, fillcolor=\"#dbe9f6\"" : "shape=box, fillcolor=\"#e8e8e8\"";
    dot += fmt::format("  {} [{}];\n", quoted(one.name), look);
  }
  for (const Host& host : graph.hosts)
    dot += fmt::format("  {} [shape=box, fillcolor=\"#fdf3d8\"];\n", quoted(host.name));
  if (!graph.switches.empty()) {
    for (const auto& [tier, names] : tiers) dot += same_rank(names);
  }

  for (const Link& link : graph.links) {
    // Graphviz draws the first node of an edge on top.
    const auto tier = [&](const LinkEnd& end) {
      return end.node == LinkEnd::Node::kHost ? 0 : graph.switches[end.index].tier;
    };
    const std::size_t upper = tier(link.ends[1]) > tier(link.ends[0]) ? 1 : 0;
    const LinkEnd& top = link.ends[upper];
    const LinkEnd& bottom = link.ends[1 - upper];
    dot += fmt::format("  {} -- {} [label=\"{}\", taillabel=\"{}\", headlabel=\"{}\"];\n", quoted(graph.node_name(top)),
                       quoted(graph.node_name(bottom)), label(link), graph.interface(top).name,
                       graph.interface(bottom).name);
  }
  return dot + "}\n";
}

}  // namespace plugfest::topology
