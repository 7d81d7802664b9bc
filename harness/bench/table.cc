#include "harness/bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::bench {
namespace {

constexpr double kWidth = 720, kHeight = 480, kLeft = 70, kRight = 170, kTop = 40, kBottom = 50;

constexpr double kLineHeight = 14;

struct Label {
  double x, y;
  std::string words;
};

// Maps the decades that contain all values to a range of the drawing.
struct Axis {
  double low = 0, high = 1;  // exponents of ten
  double from = 0, to = 1;

  void widen(const std::vector<double>& values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    low = std::floor(std::log10(*least));
    high = std::max(std::ceil(std::log10(*most)), low + 1);
  }
  double position(double value) const { return from + (std::log10(value) - low) / (high - low) * (to - from); }
};

std::string text(double x, double y, const std::string& anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     report::escaped(words));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
}

// A line of slope one through the corner of a decade, clipped to the axes.
std::string slope_one(const Axis& x, const Axis& y, double decade) {
  const double first = std::max(x.low, y.low - decade), last = std::min(x.high, y.high - decade);
  if (first >= last) return "";
  return line(x.position(std::pow(10, first)), y.position(std::pow(10, first + decade)), x.position(std::pow(10, last)),
              y.position(std::pow(10, last + decade)), "stroke=\"#bbb\" stroke-dasharray=\"2 4\"");
}

}  // namespace

std::string log_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     const std::vector<Series>& all) {
  std::vector<double> xs, ys;
  for (const Series& series : all) {
    for (const auto& [x, y] : series.points) {
      xs.push_back(x);
      ys.push_back(y);
    }
  }
  Axis x{.from = kLeft, .to = kWidth - kRight}, y{.from = kHeight - kBottom, .to = kTop};
  if (!xs.empty()) {
    x.widen(xs);
    y.widen(ys);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text(kLeft, kTop - 16, "start", title);
  for (double exponent = x.low; exponent <= x.high; ++exponent) {
    const double at = x.position(std::pow(10, exponent));
    svg += line(at, y.from, at, y.to, "stroke=\"#ddd\"");
    svg += text(at, y.from + 18, "middle", fmt::format("{:g}", std::pow(10, exponent)));
  }
  for (double exponent = y.low; exponent <= y.high; ++exponent) {
    const double at = y.position(std::pow(10, exponent));
    svg += line(x.from, at, x.to, at, "stroke=\"#ddd\"");
    svg += text(x.from - 8, at + 4, "end", fmt::format("{:g}", std::pow(10, exponent)));
  }
  for (double decade = y.low - x.high; decade <= y.high - x.low; ++decade) svg += slope_one(x, y, decade);
  svg += text((x.from + x.to) / 2, kHeight - 12, "middle", x_name);
  svg += text(kLeft - 60, kTop - 16, "start", y_name);

  std::vector<Label> labels;
  for (const Series& series : all) {
    if (series.points.empty()) continue;
    std::string path;
    for (const auto& [px, py] : series.points) {
      path += fmt::format("{:.1f},{:.1f} ", x.position(px), y.position(py));
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x.position(px), y.position(py),
                         series.color);
    }
    svg +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, series.color);
    const auto& [last_x, last_y] = series.points.back();
    labels.push_back({x.position(last_x) + 8, y.position(last_y) + 4, series.name});
  }
  // Moves labels down until they do not overlap.
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.y < b.y; });
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i > 0) labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLineHeight);
    svg += text(labels[i].x, labels[i].y, "start", labels[i].words);
  }
  return svg + "</svg>\n";
}

std::string number(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

namespace {

std::string met(const RowResult& result) { return !result.met ? "" : *result.met ? "yes" : "NO"; }

std::string reference(const RowResult& result) { return result.reference ? number(*result.reference) : ""; }

std::string ratio(const RowResult& result) { return result.ratio ? fmt::format("{:.2f}", *result.ratio) : ""; }

// The JSON of bench nic.
struct NicRecord {
  const report::Document& document;
  const report::Environment& environment;
  std::array<double, 2> load;
  const std::vector<RowResult>& rows;
  PLUGFEST_FIELDS(computed("schema", [] { return 1; }), key("tool.version", document.version),
                  key("tool.commit", document.commit), key("environment.kernel", environment.kernel),
                  key("environment.cpu", environment.cpu), key("environment.privileges", environment.privileges),
                  key("environment.load", load), rows)
};

// A figure of a tree, and its upper limit.
struct TreeAim {
  std::string measure;
  double aim = 0;
  double value = 0;
  PLUGFEST_FIELDS(measure, aim, value, computed("met", [this] { return value <= aim; }))
};

// The JSON of bench fabric.
struct TreeRecord {
  const report::Environment& environment;
  double load;
  const std::vector<TreeResult>& trees;
  std::vector<TreeAim> aims = {};
  PLUGFEST_FIELDS(key("kernel", environment.kernel), key("cpu", environment.cpu), load, trees, aims)
};

constexpr const char* kColumns = "{:<18} {:>7} {:<7} {:>9} {:>6}  {:<8} {}\n";
constexpr std::size_t kIndent = 2;

// "7.92 (0.95)": the figure, and its ratio to the reference.
std::string cell(const NetFigure& figure) {
  if (!figure.value) return "-";
  const std::string value = number(*figure.value);
  return figure.ratio ? fmt::format("{} ({:.2f})", value, *figure.ratio) : value + "       ";
}

}  // namespace

std::string RowResult::aim() const { return row.aim.text() + (row.aim.of == Aim::Of::kRatio ? " ×" : ""); }

std::string table_heading() { return fmt::format(kColumns, "row", "figure", "", "reference", "ratio", "aim", "met"); }

std::string table_row(const RowResult& result) {
  const Row& row = result.row;
  const std::string measure = row.reference.empty() ? row.measure : row.measure + "; reference: " + row.reference;
  return fmt::format(kColumns, row.name, number(result.figure), row.unit, reference(result), ratio(result),
                     result.aim(), met(result)) +
         std::string(kIndent, ' ') + report::wrapped(measure, kIndent) + '\n';
}

std::string markdown(const std::vector<RowResult>& results) {
  std::string text = "| measure | figure | reference | ratio | aim | met |\n|---|---|---|---|---|---|\n";
  for (const RowResult& result : results) {
    const std::string against =
        result.row.reference.empty() ? "" : fmt::format("{} ({})", reference(result), result.row.reference);
    text += fmt::format("| {} | {} {} | {} | {} | {} | {} |\n", result.row.measure, number(result.figure),
                        result.row.unit, against, ratio(result), result.aim(), met(result));
  }
  return text;
}

std::string to_json(const std::vector<RowResult>& results, const report::Document& document,
                    std::array<double, 2> load) {
  return wire::json_text(NicRecord{document, document.environment, load, results});
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

std::string net_heading(const std::vector<std::string>& subjects) {
  std::string line = fmt::format("{:<14} {:<7}", "row", "");
  for (const std::string& subject : subjects) line += fmt::format(" {:>13}", subject.substr(0, 13));
  return line + '\n';
}

std::string net_line(const NetResult& result) {
  std::string line = fmt::format("{:<14} {:<7}", result.row.name, result.row.unit);
  for (const NetFigure& figure : result.figures) line += fmt::format(" {:>13}", cell(figure));
  return line + '\n';
}

std::string net_markdown(const std::vector<NetResult>& results) {
  if (results.empty()) return "";
  std::string text = "| measure |", rule = "|---|";
  for (const NetFigure& figure : results.front().figures) {
    text += fmt::format(" {} |", figure.subject);
    rule += "---|";
  }
  text += '\n' + rule + '\n';
  for (const NetResult& result : results) {
    text += fmt::format("| {}, {} |", result.row.measure, result.row.unit);
    for (const NetFigure& figure : result.figures) {
      text += figure.ratio   ? fmt::format(" {} ({:.2f}) |", number(*figure.value), *figure.ratio)
              : figure.value ? fmt::format(" {} |", number(*figure.value))
                             : std::string(" |");
    }
    text += '\n';
  }
  return text;
}

std::string net_plot(const std::vector<NetResult>& results) {
  static constexpr std::array kColors = {"#555555", "#0b6e4f", "#c8553d", "#3d5a80", "#8f2d56", "#6a4c93"};
  std::vector<Series> all;
  for (const NetResult& result : results) {
    if (result.row.kind != NetRow::Kind::kBandwidth || result.row.comms != 1 || result.row.both_directions) continue;
    all.resize(result.figures.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].name = result.figures[i].subject;
      all[i].color = kColors[i % kColors.size()];
      if (result.figures[i].value) all[i].points.emplace_back(result.row.size, *result.figures[i].value);
    }
  }
  return log_plot("Bandwidth of one comm", "message size in bytes", "Gbit/s", all);
}

std::string tree_heading() {
  return " k hosts switch links |   up s  reach   down KiB/host | bare up   down KiB/host\n";
}

std::string tree_line(const TreeResult& tree) {
  return fmt::format("{:>2} {:>5} {:>6} {:>5} | {:>6.3f} {:>6.3f} {:>6.3f} {:>8.0f} | {:>7.3f} {:>6.3f} {:>8.0f}\n",
                     tree.k, tree.hosts, tree.switches, tree.links, tree.ours.up_seconds, tree.reach_seconds,
                     tree.ours.down_seconds, tree.ours.host_kib, tree.floor.up_seconds, tree.floor.down_seconds,
                     tree.floor.host_kib);
}

std::string tree_json(const std::vector<TreeResult>& trees, const report::Document& document, double load) {
  TreeRecord record{document.environment, load, trees};
  for (const TreeResult& tree : trees) {
    if (tree.k <= 16)
      record.aims.push_back({fmt::format("k={} up, seconds", tree.k),
                             tree.k <= 4   ? 0.1
                             : tree.k <= 8 ? 1.0
                                           : 10.0,
                             tree.ours.up_seconds});
    record.aims.push_back(
        {fmt::format("k={} down, of the bare kernel's", tree.k), 2, tree.ours.down_seconds / tree.floor.down_seconds});
  }
  return wire::json_text(record);
}

std::string tree_plot(const std::vector<TreeResult>& trees) {
  const auto series = [&](const std::string& name, const std::string& color, UpAndDown TreeResult::*side,
                          double UpAndDown::*seconds) {
    Series one{name, color, {}};
    for (const TreeResult& tree : trees)
      if (const double value = tree.*side.*seconds; value > 0) one.points.emplace_back(tree.links, value);
    return one;
  };
  const auto up = &UpAndDown::up_seconds, down = &UpAndDown::down_seconds;
  return log_plot("Fat trees: up and down (dotted: cost linear in links)", "links", "seconds",
                  {series("up", "#1f6fb4", &TreeResult::ours, up), series("down", "#7fb3dd", &TreeResult::ours, down),
                   series("bare kernel up", "#2a8a3a", &TreeResult::floor, up),
                   series("bare kernel down", "#8fcf9a", &TreeResult::floor, down)});
}

}  // namespace plugfest::bench
