#include "fabric/system/text.h"

#include <gtest/gtest.h>

namespace plugfest {
namespace {

TEST(Text, UsesSingularAndPlural) {
  EXPECT_EQ(counted(0, "rule"), "0 rules");
  EXPECT_EQ(counted(1, "rule"), "1 rule");
  EXPECT_EQ(counted(2, "switch"), "2 switches");
}

TEST(Text, ShowsItsLengthIfItIsShortened) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc… (4 bytes)");
  EXPECT_EQ(shortened("a→b", 3), "a… (5 bytes)") << "no half character";
  EXPECT_EQ(shortened("a→b", 4), "a→… (5 bytes)");
  EXPECT_EQ(shortened(std::string(10, '\x80'), 5), "\x80\x80… (10 bytes)") << "invalid UTF-8";
}

TEST(Text, IsReplacedEverywhereOnce) {
  EXPECT_EQ(replaced("{} and {}", "{}", "{}{}"), "{}{} and {}{}");
  EXPECT_EQ(replaced("none", "{}", "x"), "none");
}

TEST(Text, IsShortenedToFewShortLines) {
  EXPECT_EQ(shortened_lines("one\ntwo\n", 3, 2), "one\ntwo\n");
  EXPECT_EQ(shortened_lines("one\ntwenty\nthree", 3, 3), "one\ntwe… (6 bytes)\nthr… (5 bytes)");
  EXPECT_EQ(shortened_lines("1\n2\n3\n4", 3, 2), "1\n2\n… (3 bytes left out)");
}

}  // namespace
}  // namespace plugfest
