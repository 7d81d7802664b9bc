#include "fabric/topology/quantity.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>

namespace plugfest::topology {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kRateUnits[] = {{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}};
constexpr Unit kDelayUnits[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
constexpr Unit kDurationUnits[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}};
constexpr double kMaxBitsPerSecond = 1e13;
constexpr double kMaxDelayUs = 1e7;
constexpr double kMaxDurationNs = 3600e9;

[[noreturn]] void expected(std::string_view text, std::string_view what) {
  throw std::runtime_error(fmt::format("\"{}\": expected {}", text, what));
}

// Parses a number directly followed by a unit, and converts it to the base unit.
std::optional<double> parse_with_unit(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const Unit& known : units)
    if (unit == known.name) return number * known.factor;
  return std::nullopt;
}

}  // namespace

std::uint64_t parse_rate(std::string_view text) {
  const std::optional<double> rate = parse_with_unit(text, kRateUnits);
  if (!rate) expected(text, "a number and a unit, as in 10Gbit");
  if (!(*rate >= 1 && *rate <= kMaxBitsPerSecond)) expected(text, "a rate from 1bit to 10Tbit");
  return static_cast<std::uint64_t>(std::llround(*rate));
}

std::uint32_t parse_delay(std::string_view text) {
  const std::optional<double> delay = parse_with_unit(text, kDelayUnits);
  if (!delay) expected(text, "a number and a unit, as in 50us");
  if (!(*delay >= 0 && *delay <= kMaxDelayUs)) expected(text, "a delay from 0us to 10s");
  return static_cast<std::uint32_t>(std::lround(*delay));
}

std::int64_t parse_duration(std::string_view text) {
  const std::optional<double> duration = parse_with_unit(text, kDurationUnits);
  if (!duration) expected(text, "a number and a unit, as in 200ms");
  if (!(*duration > 0 && *duration <= kMaxDurationNs)) expected(text, "a duration above 0 and up to 60min");
  return static_cast<std::int64_t>(std::llround(*duration));
}

double parse_fraction(std::string_view text) {
  std::string_view digits = text;
  const bool percent = digits.ends_with('%');
  if (percent) digits.remove_suffix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const double fraction = percent ? number / 100 : number;
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  // A bare 1 is refused: it may mean 1 % or 100 %.
  if (!is_number || !(fraction >= 0 && (percent ? fraction <= 1 : fraction < 1)))
    expected(text, "a fraction below 1 or a percentage, as in 0.01 or 1%");
  return fraction;
}

Ipv4Address parse_address(std::string_view text) {
  in_addr address = {};
  if (inet_pton(AF_INET, std::string(text).c_str(), &address) != 1) expected(text, "an address, as in 192.168.100.7");
  return {ntohl(address.s_addr)};
}

int parse_count(std::string_view text, int min, int max) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < min || number > max)
    expected(text, fmt::format("a whole number from {} to {}", min, max));
  return number;
}

std::uint64_t parse_size(std::string_view text, std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  constexpr std::string_view kUnits[] = {"", "K", "M", "G"};
  const auto* const found = std::find(std::begin(kUnits), std::end(kUnits), unit == "k" ? "K" : unit);
  const auto bits = 10 * (found - std::begin(kUnits));
  if (error != std::errc() || found == std::end(kUnits) || value == 0 || value > max >> bits)
    expected(text, "a size such as 8, 64K or 128M");
  return value << bits;
}

int parse_mtu(std::string_view text) { return parse_count(text, 576, 65535); }

Subnet parse_subnet(std::string_view text) {
  constexpr std::string_view kForm = "an IPv4 network and its prefix length from 8 to 30, as in 10.0.0.0/30";
  const std::size_t slash = text.find('/');
  in_addr address = {};
  if (slash == std::string_view::npos || inet_pton(AF_INET, std::string(text.substr(0, slash)).c_str(), &address) != 1)
    expected(text, kForm);
  Subnet subnet;
  subnet.network.value = ntohl(address.s_addr);
  const std::string_view length = text.substr(slash + 1);
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), subnet.prefix_length);
  if (error != std::errc() || end != length.data() + length.size()) expected(text, kForm);
  if (subnet.prefix_length < 8 || subnet.prefix_length > 30) expected(text, kForm);
  const std::uint32_t host_part = ~0u >> subnet.prefix_length;
  if ((subnet.network.value & host_part) != 0) {
    const Ipv4Address network = {subnet.network.value & ~host_part};
    expected(text, fmt::format("the network address, {}/{}", network.text(), subnet.prefix_length));
  }
  const std::uint32_t first = subnet.network.value >> 24;
  if (first == 0 || first == 127 || first >= 224)
    expected(text, "addresses of hosts, from 1.0.0.0 to 223.255.255.255 without 127.0.0.0/8");
  return subnet;
}

std::string rate_text(std::uint64_t bits_per_second) {
  for (const Unit& unit : kRateUnits) {
    const auto factor = static_cast<std::uint64_t>(unit.factor);
    if (bits_per_second % factor == 0) return fmt::format("{}{}", bits_per_second / factor, unit.name);
  }
  return {};  // not reached: the last unit divides every number
}

std::string delay_text(std::uint32_t microseconds) {
  if (microseconds % 1000 != 0 || microseconds == 0) return fmt::format("{}us", microseconds);
  if (microseconds % 1000000 != 0) return fmt::format("{}ms", microseconds / 1000);
  return fmt::format("{}s", microseconds / 1000000);
}

}  // namespace plugfest::topology
