#include "fabric/sharp_coll/settings.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace plugfest::sharp_coll {
namespace {

Settings settings_of(const std::map<std::string, std::string>& environment) {
  return Settings::from([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(SharpSettings, FollowTheEnvironment) {
  const Settings settings = settings_of({{"SHARP_COLL_LOG_LEVEL", "3"},
                                         {"SHARP_COLL_ENABLE_SAT", "1"},
                                         {"SHARP_COLL_LOCK_ON_COMM_INIT", "y"},
                                         {"SHARP_COLL_JOB_QUOTA_OSTS", "16"},
                                         {"SHARP_COLL_STATS_DUMP_MODE", "1"},
                                         {"SHARP_COLL_ENABLE_MCAST", "1"},
                                         {"PLUGFEST_SHARP_MANAGER", "10.255.0.1:4794"}});
  EXPECT_EQ(settings.text(),
            "SHARP_COLL_LOG_LEVEL=3\nSHARP_COLL_ENABLE_SAT=1\nSHARP_COLL_LOCK_ON_COMM_INIT=1\n"
            "SHARP_COLL_JOB_QUOTA_OSTS=16\nSHARP_COLL_STATS_DUMP_MODE=1\nPLUGFEST_SHARP_MANAGER=10.255.0.1:4794\n");
}

TEST(SharpSettings, KeepTheirDefaultsForOtherValues) {
  const Settings settings = settings_of(
      {{"SHARP_COLL_LOG_LEVEL", "high"}, {"SHARP_COLL_ENABLE_SAT", "2"}, {"SHARP_COLL_JOB_QUOTA_OSTS", "-1"}});
  EXPECT_EQ(settings.text(), Settings().text());
}

}  // namespace
}  // namespace plugfest::sharp_coll
