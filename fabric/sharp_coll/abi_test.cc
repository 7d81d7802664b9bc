// The exported functions: arguments, codes and messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fabric/sharp_coll/sharp/api/sharp.h"

namespace plugfest::sharp_coll {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(SharpAbi, NullArgumentsAreInvalid) {
  sharp_coll_init_spec init = {};
  sharp_coll_context* context = nullptr;
  void* handle = nullptr;
  EXPECT_EQ(sharp_coll_init(nullptr, &context), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_init(&init, nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_finalize(nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_caps_query(nullptr, nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_comm_init(nullptr, nullptr, nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_comm_destroy(nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_progress(nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_reg_mr(nullptr, &handle, 8, &handle), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_dereg_mr(nullptr, &handle), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_do_barrier(nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_do_allreduce(nullptr, nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_do_allgather_nb(nullptr, nullptr, &handle), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_req_free(nullptr), SHARP_COLL_EINVAL);
  EXPECT_EQ(sharp_coll_req_wait(nullptr), SHARP_COLL_EINVAL);
  // nccl-rdma-sharp-plugins tests the null handle of a collective that could not be posted, until it is complete.
  EXPECT_NE(sharp_coll_req_test(nullptr), 0);
}

TEST(SharpAbi, EveryCodeHasAText) {
  for (int code = -40; code <= 5; ++code) EXPECT_STRNE(sharp_coll_strerror(code), "") << code;
  EXPECT_STREQ(sharp_coll_strerror(SHARP_COLL_ELOCK_FAILED), "another group holds the SAT lock of the tree");
  EXPECT_STREQ(sharp_coll_strerror(1), "unknown error");
}

TEST(SharpAbi, AFailureIsOneLineThatCanBeHidden) {
  sharp_coll_init_spec spec = {};
  spec.world_size = 1;
  spec.config = sharp_coll_default_config;
  EXPECT_EQ(spec.config.coll_timeout, -1);
  spec.config.ib_dev_list = "no such device:1";
  sharp_coll_context* context = reinterpret_cast<sharp_coll_context*>(&spec);
  CaptureStderr();
  EXPECT_EQ(sharp_coll_init(&spec, &context), SHARP_COLL_EDEV);
  const std::string line = GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("sharp_coll: rank 0: device no such device does not exist in /sys/class/infiniband: "));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(context, nullptr);

  spec.config.flags = SHARP_COLL_HIDE_ERRORS;
  CaptureStderr();
  EXPECT_EQ(sharp_coll_init(&spec, &context), SHARP_COLL_EDEV);
  spec.world_rank = 1;
  EXPECT_EQ(sharp_coll_init(&spec, &context), SHARP_COLL_EINVAL);
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST(SharpAbi, TheConfigurationCanBePrinted) {
  char* text = nullptr;
  std::size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  ASSERT_NE(stream, nullptr);
  EXPECT_EQ(sharp_coll_print_config(stream, SHARP_COLL_PRINT_CONFIG, "test"), SHARP_COLL_SUCCESS);
  std::fclose(stream);
  EXPECT_THAT(std::string(text, size), HasSubstr("SHARP_COLL_ENABLE_SAT=0\n"));
  std::free(text);
}

}  // namespace
}  // namespace plugfest::sharp_coll
