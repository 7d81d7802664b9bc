// Parses and formats rates, delays, sizes, addresses and subnets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

// The parse functions throw std::runtime_error with the text and the expected form, without its position:
// `"10 gigs": expected a number and a unit, as in 10Gbit`.

/// "10Gbit", "2.5Gbit", "800Mbit", "64kbit": in bits per second, with decimal prefixes. Never 0.
std::uint64_t parse_rate(std::string_view text);

/// "50us", "2ms", "0.5ms", "1s": in microseconds, at most 10 s.
std::uint32_t parse_delay(std::string_view text);

/// "200ms", "1.5s", "2min": in nanoseconds, more than 0 and at most one hour.
std::int64_t parse_duration(std::string_view text);

/// "1%", "0.01", "100%": a fraction from 0 to 1. Refuses "1", which may mean 1 % or 100 %.
double parse_fraction(std::string_view text);

/// "192.168.100.7"
Ipv4Address parse_address(std::string_view text);

/// "1500", "9000": in bytes, 576 to 65535.
int parse_mtu(std::string_view text);

/// "10.0.0.0/30": a network address and a prefix length from 8 to 30.
Subnet parse_subnet(std::string_view text);

/// A decimal integer from `min` to `max`.
int parse_count(std::string_view text, int min, int max);

/// "8", "64K", "128M", "1G": in bytes, with binary prefixes, 1 to `max`. Also "64k".
std::uint64_t parse_size(std::string_view text, std::uint64_t max);

/// The value in the largest unit in which it is an integer: "10Gbit", "2500Mbit".
std::string rate_text(std::uint64_t bits_per_second);
/// The value in the largest unit in which it is an integer: "50us", "2ms".
std::string delay_text(std::uint32_t microseconds);

}  // namespace plugfest::topology
