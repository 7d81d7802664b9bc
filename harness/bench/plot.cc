#include "harness/bench/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace plugfest::bench {
namespace {

constexpr double kWidth = 720, kHeight = 480, kLeft = 70, kRight = 170, kTop = 40, kBottom = 50;

constexpr double kLineHeight = 14;

struct Label {
  double x, y;
  std::string words;
};

/// Maps the decades that contain all values to a range of the drawing.
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

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

std::string text(double x, double y, const std::string& anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(words));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
}

/// A line of slope one through the corner of a decade, clipped to the axes.
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
                         series.colour);
    }
    svg +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, series.colour);
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

}  // namespace plugfest::bench
