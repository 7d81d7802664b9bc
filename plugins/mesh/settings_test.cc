#include "plugins/mesh/settings.h"

#include <gtest/gtest.h>

#include <map>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

Settings settings_with(const std::map<std::string, std::string>& environment) {
  return read_settings([&](const char* name) {
    const auto found = environment.find(name);
    return found != environment.end() ? found->second.c_str() : nullptr;
  });
}

std::string error_of(const std::string& name, const std::string& value) {
  try {
    settings_with({{name, value}});
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), Result::kInvalidArgument);
    return failure.what();
  }
  return "";
}

TEST(SettingsTest, AdmitsTheDevicesOfAListOrAllOthersAfterACaret) {
  EXPECT_TRUE(settings_with({}).admits("mlx5_0"));
  const Settings listed = settings_with({{"NCCL_MESH_HCA", "mlx5_1,roce_"}});
  EXPECT_FALSE(listed.admits("mlx5_0"));
  EXPECT_TRUE(listed.admits("mlx5_1"));
  EXPECT_TRUE(listed.admits("roce_eth0"));
  const Settings excluding = settings_with({{"NCCL_MESH_HCA", "^mlx5_1"}});
  EXPECT_TRUE(excluding.admits("mlx5_0"));
  EXPECT_FALSE(excluding.admits("mlx5_1"));
}

TEST(SettingsTest, ReadsNumbers) {
  const Settings settings = settings_with({{"NCCL_MESH_GID_INDEX", "3"},
                                           {"NCCL_MESH_TIMEOUT", "20"},
                                           {"NCCL_MESH_RETRY_CNT", "0"},
                                           {"NCCL_MESH_TC", "106"},
                                           {"NCCL_MESH_LINKS", "2"},
                                           {"NCCL_MESH_QPS_PER_LINK", "3"},
                                           {"NCCL_MESH_EAGER", "0"}});
  EXPECT_EQ(settings.eager_bytes, 0);
  EXPECT_EQ(settings.links, 2);
  EXPECT_EQ(settings.queue_pairs, 3);
  EXPECT_EQ(settings.gid_index, 3);
  EXPECT_EQ(settings.timeout, 20);
  EXPECT_EQ(settings.retry_count, 0);
  EXPECT_EQ(settings.traffic_class, 106);
}

TEST(SettingsTest, ReadsRelaySettings) {
  const Settings settings =
      settings_with({{"NCCL_MESH_RELAY_SECRET", "0123456789abcdef"}, {"NCCL_MESH_RELAY_WAIT", "3"}});
  EXPECT_EQ(settings.relay_secret, "0123456789abcdef");
  EXPECT_EQ(settings.relay_wait_s, 3);
}

TEST(SettingsTest, UsesDefaultsForEmptyValues) {
  const Settings settings = settings_with({{"NCCL_MESH_TIMEOUT", ""}, {"NCCL_MESH_RELAY_SECRET", ""}});
  EXPECT_EQ(settings.timeout, Settings().timeout);
  EXPECT_EQ(settings.relay_secret, "");
  EXPECT_EQ(settings.cuda, std::nullopt);
}

TEST(SettingsTest, RefusesAShortRelaySecretWithoutPrintingIt) {
  EXPECT_EQ(error_of("NCCL_MESH_RELAY_SECRET", "0123456789abcde"),
            "NCCL_MESH_RELAY_SECRET is too short: expected at least 16 characters");
}

TEST(SettingsTest, RefusesInvalidNumbers) {
  EXPECT_EQ(error_of("NCCL_MESH_TIMEOUT", "32"), "NCCL_MESH_TIMEOUT=32: expected a number from 1 to 31");
  EXPECT_EQ(error_of("NCCL_MESH_EAGER", "4097"), "NCCL_MESH_EAGER=4097: expected a number from 0 to 4096");
  EXPECT_EQ(error_of("NCCL_MESH_RETRY_CNT", "7x"), "NCCL_MESH_RETRY_CNT=7x: expected a number from 0 to 7");
  EXPECT_EQ(error_of("NCCL_MESH_RELAY_PORT", "80"), "NCCL_MESH_RELAY_PORT=80: expected a number from 1024 to 65535");
  EXPECT_EQ(error_of("NCCL_MESH_CUDA", "2"), "NCCL_MESH_CUDA=2: expected a number from 0 to 1");
}

}  // namespace
}  // namespace mesh
