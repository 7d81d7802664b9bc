// Quantities as people write them: rates, delays, sizes, subnets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

// Each throws std::runtime_error that quotes the text and says what was expected, for the caller to put the place
// before it:
// `"10 gigs": expected a number and a unit, as in 10Gbit`.

/// "10Gbit", "2.5Gbit", "800Mbit", "64kbit": bits per second, by powers of ten. Never 0.
std::uint64_t parse_rate(std::string_view text);

/// "50us", "2ms", "0.5ms", "1s": microseconds, at most 10 s.
std::uint32_t parse_delay(std::string_view text);

/// "200ms", "1.5s", "2min": nanoseconds, more than 0 and at most an hour.
std::int64_t parse_duration(std::string_view text);

/// "1%", "0.01": a part of the whole, 0 to 1.
double parse_share(std::string_view text);

/// "192.168.100.7"
Ipv4Address parse_address(std::string_view text);

/// "1500", "9000": bytes, 576 to 65535.
int parse_mtu(std::string_view text);

/// "10.0.0.0/30": the network's own address before the slash, a prefix length from 8 to 30 behind.
Subnet parse_subnet(std::string_view text);

/// A whole number in decimal digits, from `least` to `most`.
int parse_count(std::string_view text, int least, int most);

/// The number with the largest unit that shows it exactly: "10Gbit", "2500Mbit".
std::string rate_text(std::uint64_t bits_per_second);
std::string delay_text(std::uint32_t microseconds);

}  // namespace plugfest::topology
