// Parses specifications: a topology's name, its numbers, and the parameters of its links.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "fabric/input/suggest.h"
#include "fabric/topology/file.h"
#include "fabric/topology/generators.h"
#include "fabric/topology/graph.h"
#include "fabric/topology/quantity.h"

namespace plugfest::topology {
namespace {

using Numbers = std::span<const int>;

struct Number {
  const char* name;
  int least;
  int most;
};

struct Shape {
  const char* name;
  std::vector<Number> numbers;
  const char* example;  // a complete specification
  bool parallel_links;  // whether links= is allowed
  Graph (*make)(Numbers numbers, int links, const LinkParameters& parameters);
};

// The limits leave a subnet for each link, and one or two processes per host on a large machine.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"pair", {}, "pair", true, [](Numbers, int links, const LinkParameters& p) { return pair(links, p); }},
      {"triangle",
       {},
       "triangle",
       true,
       [](Numbers, int links, const LinkParameters& p) { return triangle(links, p); }},
      {"mesh",
       {{"N", 2, 64}},
       "mesh:4",
       true,
       [](Numbers n, int links, const LinkParameters& p) { return mesh(n[0], links, p); }},
      {"ring",
       {{"N", 3, 1024}},
       "ring:4",
       true,
       [](Numbers n, int links, const LinkParameters& p) { return ring(n[0], links, p); }},
      {"line",
       {{"N", 2, 1024}},
       "line:4",
       true,
       [](Numbers n, int links, const LinkParameters& p) { return line(n[0], links, p); }},
      {"star",
       {{"N", 2, 1000}},
       "star:4",
       false,
       [](Numbers n, int, const LinkParameters& p) { return star(n[0], p); }},
      {"fat-tree",
       {{"K", 2, 32}},
       "fat-tree:4",
       false,
       [](Numbers n, int, const LinkParameters& p) { return fat_tree(n[0], p); }},
      {"leaf-spine",
       {{"L", 1, 64}, {"S", 1, 64}, {"H", 1, 64}},
       "leaf-spine:4,2,4",
       false,
       [](Numbers n, int, const LinkParameters& p) { return leaf_spine(n[0], n[1], n[2], p); }},
      {"rail",
       {{"R", 1, 16}, {"H", 2, 1000}},
       "rail:2,4",
       false,
       [](Numbers n, int, const LinkParameters& p) { return rails(n[0], n[1], p); }},
  };
  return all;
}

// "leaf-spine:L,S,H"
std::string form(const Shape& shape) {
  std::string text = shape.name;
  for (std::size_t i = 0; i < shape.numbers.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? ":" : ",", shape.numbers[i].name);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The link parameters of a specification: mtu=, rate=, delay=, links=.
struct Settings {
  LinkParameters parameters;
  int links = 1;

  void set(std::string_view key, std::string_view value, bool parallel_links) {
    constexpr int kMaxParallelLinks = 16;
    if (key == "mtu") {
      parameters.mtu_bytes = parse_mtu(value);
    } else if (key == "rate") {
      parameters.rate_bits_per_second = parse_rate(value);
    } else if (key == "delay") {
      parameters.delay_us = parse_delay(value);
    } else if (key == "links" && parallel_links) {
      links = parse_count(value, 1, kMaxParallelLinks);
    } else if (key == "loss" || key == "drop") {
      throw std::runtime_error("is a fault, not a topology: use --faults loss=1%");
    } else {
      throw std::runtime_error(fmt::format("is unknown: expected mtu, rate, delay{}", parallel_links ? ", links" : ""));
    }
  }
};

Graph make(const Shape& shape, std::string_view items) {
  const std::string expected = fmt::format("expected {}, as in {}", form(shape), shape.example);
  std::vector<int> numbers;
  Settings settings;
  bool has_settings = false;
  for (const std::string_view item : items.empty() ? std::vector<std::string_view>() : split(items, ',')) {
    const std::size_t equals = item.find('=');
    if (equals != std::string_view::npos) {
      has_settings = true;
      const std::string_view key = item.substr(0, equals);
      try {
        settings.set(key, item.substr(equals + 1), shape.parallel_links);
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(fmt::format("{} {}", key, error.what()));
      }
      continue;
    }
    if (has_settings || numbers.size() == shape.numbers.size()) throw std::runtime_error(expected);
    const Number& number = shape.numbers[numbers.size()];
    try {
      numbers.push_back(parse_count(item, number.least, number.most));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{} {}", number.name, error.what()));
    }
  }
  if (numbers.size() != shape.numbers.size()) throw std::runtime_error(expected);
  if (std::string_view(shape.name) == "fat-tree" && numbers[0] % 2 != 0) {
    throw std::runtime_error(fmt::format("K \"{}\": expected an even number", numbers[0]));
  }
  return shape.make(numbers, settings.links, settings.parameters);
}

auto find_shape(std::string_view name) {
  return std::find_if(shapes().begin(), shapes().end(), [&](const Shape& one) { return name == one.name; });
}

}  // namespace

std::string nearest_name(std::string_view word) {
  std::vector<std::string> names;
  for (const Shape& one : shapes()) names.emplace_back(one.name);
  return input::nearest(word, names, word.size() / 4);
}

Graph named(std::string_view specification) {
  if (specification.ends_with(".yaml") || specification.ends_with(".yml")) return read_file(specification);
  const std::size_t colon = specification.find(':');
  const std::string_view name = specification.substr(0, colon);
  const auto shape = find_shape(name);
  if (shape == shapes().end()) {
    if (const auto meant = find_shape(nearest_name(name)); meant != shapes().end())
      throw std::runtime_error(fmt::format("no topology \"{}\": did you mean {}?", name, form(*meant)));
    std::string known;
    for (const Shape& one : shapes()) known += form(one) + ", ";
    throw std::runtime_error(fmt::format("no topology \"{}\": expected {}or a file that ends in .yaml", name, known));
  }
  const std::string_view items = colon == std::string_view::npos ? std::string_view() : specification.substr(colon + 1);
  try {
    Graph graph = make(*shape, items);
    graph.name = specification;
    return graph;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("topology {}: {}", specification, error.what()));
  }
}

}  // namespace plugfest::topology
