#include "fabric/topology/draw.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "fabric/topology/quantity.h"

namespace plugfest::topology {
namespace {

/// A position in the picture in points; y grows upwards.
struct Point {
  double x = 0;
  double y = 0;
};
Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
Point operator*(Point a, double factor) { return {a.x * factor, a.y * factor}; }

constexpr double kTextLine = 12;
constexpr Point kNode = {68, 40};
constexpr Point kInterface = {28, 14};

// Quotes and escapes text. The name of a graph may be a file path with arbitrary characters.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::vector<std::string> label(const Link& link) {
  std::vector<std::string> lines = {link.subnet.text()};
  if (link.rate_bits_per_second > 0) lines.push_back(rate_text(link.rate_bits_per_second));
  if (link.delay_us > 0) lines.push_back(delay_text(link.delay_us));
  return lines;
}

/// The positions of the nodes and texts of a graph. Hosts alone form a circle, or a row if each link joins neighbors.
/// With switches, each tier is a row, hosts at the bottom, all in the order of the graph.
class Layout {
 public:
  explicit Layout(const Graph& graph) : graph_(graph) {
    place_nodes();
    for (const Point place : hosts_) taken_.push_back({place, kNode});
    for (const Point place : switches_) taken_.push_back({place, kNode});
    for (const Link& link : graph.links) ++parallel_[ends(link)].second;
  }

  Point of(const LinkEnd& end) const {
    return end.node == LinkEnd::Node::kHost ? hosts_[end.index] : switches_[end.index];
  }

  /// The positions of a link's texts.
  struct Texts {
    Point label;  ///< the link's line passes through it
    std::array<Point, 2> interfaces;
  };

  /// The positions of the texts of all links.
  std::vector<Texts> texts() {
    std::vector<Texts> all;
    for (const Link& link : graph_.links) {
      const Point middle = straight(link) + bend(link);
      Texts& texts = all.emplace_back(Texts{.label = middle, .interfaces = {}});
      for (std::size_t i = 0; i < 2; ++i) texts.interfaces[i] = interface_of(link.ends[i], middle);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Link& link = graph_.links[i];
      const bool is_straight = parallel_[ends(link)].second == 1 && !passes_nodes(link);
      const Point from = of(link.ends[0]), along = of(link.ends[1]) - from;
      if (is_straight) all[i].label = take_free(from, along, label_share(link), size_of_label(link));
    }
    return all;
  }

 private:
  using Ends = std::pair<LinkEnd, LinkEnd>;
  static constexpr double kTier = 190;

  struct Box {
    Point center;
    Point size;

    bool overlaps(const Box& other) const {
      const Point apart = center - other.center;
      return 2 * std::abs(apart.x) < size.x + other.size.x && 2 * std::abs(apart.y) < size.y + other.size.y;
    }
  };

  void place_nodes() {
    const std::size_t count = graph_.hosts.size();
    const bool row = std::all_of(graph_.links.begin(), graph_.links.end(), neighbors_in_row);
    const bool circle = graph_.switches.empty() && !row;
    const bool wide = std::any_of(graph_.links.begin(), graph_.links.end(),
                                  [&](const Link& link) { return tier(link.ends[0]) == tier(link.ends[1]); });
    column_ = wide ? 260 : 120;
    const double width = column_ * static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double angle = 2 * std::acos(-1.0) * static_cast<double>(i) / static_cast<double>(count);
      const double radius = 80 + 40 * static_cast<double>(count);
      const Point in_circle = {radius * std::sin(angle), radius * std::cos(angle)};
      hosts_.push_back(circle ? in_circle : Point{(static_cast<double>(i) + 0.5) * column_, 0});
    }
    std::map<int, std::vector<std::size_t>> tiers;
    for (std::size_t i = 0; i < graph_.switches.size(); ++i) tiers[graph_.switches[i].tier].push_back(i);
    switches_.resize(graph_.switches.size());
    double height = 0;
    for (const auto& [tier, indices] : tiers) {
      // Between switches, lines are long.
      height += height == 0 ? kTier : std::max(kTier, width / 6);
      const double column = std::max(width / static_cast<double>(indices.size()), column_);
      for (std::size_t i = 0; i < indices.size(); ++i)
        switches_[indices[i]] = {(static_cast<double>(i) + 0.5) * column, height};
    }
  }

  int tier(const LinkEnd& end) const { return end.node == LinkEnd::Node::kHost ? 0 : graph_.switches[end.index].tier; }
  static std::size_t apart(const Link& link) {
    const auto [low, high] = std::minmax(link.ends[0].index, link.ends[1].index);
    return high - low;
  }
  static bool neighbors_in_row(const Link& link) { return apart(link) == 1; }
  bool neighbors(const Link& link) const { return apart(link) == 1 || apart(link) + 1 == graph_.hosts.size(); }

  /// Whether other nodes of its row are between the ends of a link.
  bool passes_nodes(const Link& link) const {
    return !graph_.switches.empty() && tier(link.ends[0]) == tier(link.ends[1]) && apart(link) > 1;
  }

  static Point size_of_label(const Link& link) {
    const std::vector<std::string> lines = label(link);
    return {6.0 * static_cast<double>(lines.front().size()) + 6, kTextLine * static_cast<double>(lines.size()) + 4};
  }

  /// The position of the label as a share of the way from the first end to the second. The label is near the lower end,
  /// where lines are far apart, and not in the middle of a circle, where all lines cross.
  double label_share(const Link& link) const {
    const double rise = of(link.ends[1]).y - of(link.ends[0]).y;
    if (graph_.switches.empty()) return neighbors(link) ? 0.5 : 0.36;
    return rise > 0 ? 0.3 : rise < 0 ? 0.7 : 0.5;
  }

  /// The position of a label on a straight line.
  Point straight(const Link& link) const {
    const Point from = of(link.ends[0]);
    return from + (of(link.ends[1]) - from) * label_share(link);
  }

  /// How far the label of a link is from the straight line, so that parallel links differ. Call it once for each link.
  Point bend(const Link& link) {
    const Point along = of(link.ends[1]) - of(link.ends[0]);
    const double length = std::hypot(along.x, along.y);
    const bool backwards = along.x < 0 || (along.x == 0 && along.y < 0);
    const Point across = Point{-along.y / length, along.x / length} * (backwards ? -1 : 1);
    auto& [drawn, count] = parallel_[ends(link)];
    const Point size = size_of_label(link);
    const double spacing = std::max(std::abs(across.x) * (size.x + 12), std::abs(across.y) * (size.y + 12));
    Point bend = across * ((static_cast<double>(drawn++) - static_cast<double>(count - 1) / 2) * spacing);
    if (passes_nodes(link)) bend.y -= kTier / 2;
    return bend;
  }

  /// The position of the name of an interface, between its node and the link's label.
  Point interface_of(const LinkEnd& end, Point label) {
    const Point from = of(end), along = label - from;
    const double outside = std::min({1.0, (kNode.x + kInterface.x) / 2 / std::max(std::abs(along.x), 1.0),
                                     (kNode.y + kInterface.y) / 2 / std::max(std::abs(along.y), 1.0)});
    return take_free(from, along, outside, kInterface);
  }

  /// The nodes of a link, the same for parallel links.
  static Ends ends(const Link& link) {
    const auto node = [](const LinkEnd& end) { return LinkEnd{end.node, end.index, 0}; };
    return std::minmax(node(link.ends[0]), node(link.ends[1]));
  }

  /// Returns the free position nearest to `share` of the line, or that position if none is free.
  Point take_free(Point from, Point along, double share, Point size) {
    constexpr double kStep = 0.04;
    Point place = from + along * share;
    for (int i = 1; i < 40; ++i) {
      const int steps = i / 2;
      const double other = share + ((i % 2 == 1) == (share > 0.5) ? 1 : -1) * steps * kStep;
      if (other < 0.1 || other > 0.9) continue;
      const Box box = {from + along * other, size};
      if (std::any_of(taken_.begin(), taken_.end(), [&](const Box& taken) { return taken.overlaps(box); })) continue;
      place = box.center;
      break;
    }
    taken_.push_back({place, size});
    return place;
  }

  const Graph& graph_;
  double column_ = 0;  ///< distance between neighboring hosts of a row
  std::vector<Point> hosts_;
  std::vector<Point> switches_;
  std::vector<Box> taken_;
  std::map<Ends, std::pair<std::size_t, std::size_t>> parallel_;  ///< number drawn so far, and number of all
};

// The attributes of a marked node or link; "" if `marks` does not have it.
std::string mark(const std::map<std::size_t, std::size_t>& marks, std::size_t index) {
  static constexpr std::array kColors = {"#c8553d", "#0b6e4f", "#3d5a80", "#8f2d56", "#b8860b", "#6a4c93"};
  const auto found = marks.find(index);
  if (found == marks.end()) return "";
  return fmt::format("color=\"{}\", penwidth=3", kColors[found->second % kColors.size()]);
}

std::string position(Point place) { return fmt::format("pos=\"{:.0f},{:.0f}!\"", place.x, place.y); }

}  // namespace

std::string to_dot(const Graph& graph, const Marks& marks) {
  Layout layout(graph);
  std::string dot = fmt::format("graph {} {{\n", quoted(graph.name));
  dot += "  graph [layout=neato, inputscale=72, splines=line, outputorder=edgesfirst];\n";
  dot += "  node [fontname=\"sans-serif\", style=filled];\n";
  for (std::size_t i = 0; i < graph.switches.size(); ++i) {
    const Switch& node = graph.switches[i];
    const char* look =
        node.kind == SwitchKind::kRouter ? "shape=ellipse, fillcolor=\"#dbe9f6\"" : "shape=box, fillcolor=\"#e8e8e8\"";
    const std::string color = mark(marks.switches, i);
    dot += fmt::format("  {} [{}, {}{}{}{}];\n", quoted(node.name), look,
                       position(layout.of({LinkEnd::Node::kSwitch, i, 0})), color.empty() ? "" : ", ", color,
                       marks.roots.contains(i) ? ", peripheries=2" : "");
  }
  for (std::size_t i = 0; i < graph.hosts.size(); ++i)
    dot += fmt::format("  {} [shape=box, fillcolor=\"#fdf3d8\", {}];\n", quoted(graph.hosts[i].name),
                       position(layout.of({LinkEnd::Node::kHost, i, 0})));
  // Names of hosts contain no dot, so the names below, which contain one, differ from them.
  dot += "  node [shape=plaintext, fillcolor=white, fontsize=9, margin=0.02, width=0, height=0];\n";
  const std::vector<Layout::Texts> texts = layout.texts();
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    const Link& link = graph.links[i];
    const std::string name = quoted(fmt::format("link.{}", i));
    dot += fmt::format("  {} [label=\"{}\", {}];\n", name, fmt::join(label(link), "\\n"), position(texts[i].label));
    const std::string color = mark(marks.links, i);
    dot += fmt::format("  {} -- {} -- {}{};\n", quoted(graph.node_name(link.ends[0])), name,
                       quoted(graph.node_name(link.ends[1])), color.empty() ? "" : fmt::format(" [{}]", color));
    for (std::size_t side = 0; side < 2; ++side) {
      const std::string& interface = graph.interface(link.ends[side]).name;
      dot += fmt::format("  {} [label={}, {}];\n", quoted(graph.node_name(link.ends[side]) + "." + interface),
                         quoted(interface), position(texts[i].interfaces[side]));
    }
  }
  return dot + "}\n";
}

}  // namespace plugfest::topology
