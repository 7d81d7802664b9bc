// Valid and invalid rates, delays, durations, sizes, addresses and subnets.
#include "fabric/topology/quantity.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "fabric/system/testing/error_message.h"

namespace plugfest::topology {
namespace {

TEST(Rates, AreANumberAndAUnit) {
  EXPECT_EQ(parse_rate("10Gbit"), 10'000'000'000u);
  EXPECT_EQ(parse_rate("2.5Gbit"), 2'500'000'000u);
  EXPECT_EQ(parse_rate("64kbit"), 64'000u);
  EXPECT_EQ(rate_text(parse_rate("10Gbit")), "10Gbit");
  EXPECT_EQ(rate_text(parse_rate("2.5Gbit")), "2500Mbit");
  EXPECT_EQ(rate_text(1), "1bit");
}

TEST(Rates, RefuseAnyOtherForm) {
  for (const char* text : {"10 gigs", "10", "Gbit", "", "10GBIT", "10 Gbit", "1e3Gbit", "10Gbits"}) {
    EXPECT_EQ(error_message([&] { parse_rate(text); }),
              "\"" + std::string(text) + "\": expected a number and a unit, as in 10Gbit");
  }
  for (const char* text : {"0bit", "-1Gbit", "11Tbit", "nanGbit", "infbit"}) {
    EXPECT_EQ(error_message([&] { parse_rate(text); }),
              "\"" + std::string(text) + "\": expected a rate from 1bit to 10Tbit");
  }
}

TEST(Delays, AreANumberAndAUnit) {
  EXPECT_EQ(parse_delay("50us"), 50u);
  EXPECT_EQ(parse_delay("0.5ms"), 500u);
  EXPECT_EQ(parse_delay("1s"), 1'000'000u);
  EXPECT_EQ(parse_delay("0us"), 0u);
  EXPECT_EQ(error_message([] { parse_delay("50"); }), "\"50\": expected a number and a unit, as in 50us");
  EXPECT_EQ(error_message([] { parse_delay("11s"); }), "\"11s\": expected a delay from 0us to 10s");
  EXPECT_EQ(delay_text(50) + delay_text(2000) + delay_text(3'000'000) + delay_text(0), "50us2ms3s0us");
}

TEST(Mtus, AreBytes) {
  EXPECT_EQ(parse_mtu("1500"), 1500);
  for (const char* text : {"575", "65536", "9k", "", "-1500", "99999999999"}) {
    EXPECT_EQ(error_message([&] { parse_mtu(text); }),
              "\"" + std::string(text) + "\": expected a whole number from 576 to 65535");
  }
}

TEST(Subnets, AreANetworkAndAPrefixLength) {
  EXPECT_EQ(parse_subnet("10.0.0.4/30").text(), "10.0.0.4/30");
  for (const char* text :
       {"0.0.0.0/8", "127.0.0.0/8", "127.1.2.0/24", "224.0.0.0/8", "240.0.0.0/8", "255.255.255.0/24"}) {
    EXPECT_EQ(error_message([&] { parse_subnet(text); }),
              std::string("\"") + text +
                  "\": expected addresses of hosts, from 1.0.0.0 to 223.255.255.255 without 127.0.0.0/8");
  }
  EXPECT_EQ(parse_subnet("223.255.255.0/24").text(), "223.255.255.0/24");
  EXPECT_EQ(error_message([] { parse_subnet("10.0.0.5/30"); }),
            "\"10.0.0.5/30\": expected the network address, 10.0.0.4/30");
  for (const char* text :
       {"10.0.0.0", "10.0.0/30", "10.0.0.0/31", "10.0.0.0/7", "10.0.0.0/", "10.0.0.0/30x", "/30", "host/30"}) {
    EXPECT_EQ(error_message([&] { parse_subnet(text); }),
              "\"" + std::string(text) +
                  "\": expected an IPv4 network and its prefix length from 8 to 30, as in 10.0.0.0/30");
  }
}

TEST(Durations, AreANumberAndAUnit) {
  EXPECT_EQ(parse_duration("200ms"), 200'000'000);
  EXPECT_EQ(parse_duration("1.5s"), 1'500'000'000);
  EXPECT_EQ(parse_duration("60min"), 3600'000'000'000);
  for (const char* text : {"5", "s", "soon", ""}) {
    EXPECT_EQ(error_message([&] { parse_duration(text); }),
              "\"" + std::string(text) + "\": expected a number and a unit, as in 200ms");
  }
  for (const char* text : {"0s", "-1s", "61min"}) {
    EXPECT_EQ(error_message([&] { parse_duration(text); }),
              "\"" + std::string(text) + "\": expected a duration above 0 and up to 60min");
  }
}

TEST(Fractions, ArePercentagesOrDecimals) {
  EXPECT_DOUBLE_EQ(parse_fraction("1%"), 0.01);
  EXPECT_DOUBLE_EQ(parse_fraction("0.25"), 0.25);
  for (const char* text : {"101%", "2", "-1%", "%", "", "nan"}) {
    EXPECT_EQ(error_message([&] { parse_fraction(text); }),
              "\"" + std::string(text) + "\": expected a fraction, as in 1% or 0.01");
  }
}

TEST(Addresses, AreFourNumbers) {
  EXPECT_EQ(parse_address("192.168.100.7").text(), "192.168.100.7");
  EXPECT_EQ(error_message([] { parse_address("192.168.100"); }),
            "\"192.168.100\": expected an address, as in 192.168.100.7");
}

}  // namespace
}  // namespace plugfest::topology
