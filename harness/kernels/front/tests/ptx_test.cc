// The table of PTX instructions.
#include "harness/kernels/front/ptx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::kernels::front {
namespace {

using testing::HasSubstr;

// The calls for `text` with the operands a, b, c, …
std::string calls(const std::string& text, std::size_t operands, std::size_t outputs = 0) {
  AsmStatement statement;
  statement.text = text;
  statement.outputs = outputs;
  statement.file = "my.cu";
  statement.line = 3;
  for (std::size_t i = 0; i < operands; ++i)
    statement.operands.push_back({"r", std::string(1, static_cast<char>('a' + i))});
  std::string code = translate(statement).value_or("unknown");
  for (std::size_t at; (at = code.find("::plugfest::kernels::")) != code.npos;) code.erase(at, 21);
  const std::size_t last_operand = code.rfind(" = (");
  return operands == 0 || code == "unknown" ? code : code.substr(code.find("; ", last_operand) + 2);
}

TEST(PtxTable, HasAccessesToMemory) {
  EXPECT_EQ(calls("ld.volatile.v4.u32 {%0,%1,%2,%3},[%4];", 5, 4),
            "ptx::load<std::uint32_t>(ptx::address(plugfest_4, 0), kRelaxed, plugfest_0, plugfest_1, plugfest_2, "
            "plugfest_3); ");
  EXPECT_EQ(calls("ld.acquire.sys.global.s32 %0, [%1+16];", 2, 1),
            "ptx::load<std::int32_t>(ptx::address(plugfest_1, 16), kAcquire, plugfest_0); ");
  EXPECT_EQ(calls("st.volatile.v4.u32 [%0],{%1,%3,%2,%3};", 4),
            "ptx::store<std::uint32_t>(ptx::address(plugfest_0, 0), kRelaxed, plugfest_1, plugfest_3, plugfest_2, "
            "plugfest_3); ");
  EXPECT_EQ(calls("st.release.gpu.global.L1::no_allocate.f64 [%0], %1;", 2),
            "ptx::store<double>(ptx::address(plugfest_0, 0), kRelease, plugfest_1); ");
}

TEST(PtxTable, HasAtomicOperations) {
  EXPECT_EQ(calls("atom.global.cas.b32 %0, [%1], %2, %3;", 4, 1),
            "ptx::set(plugfest_0, ptx::compare_and_swap<std::uint32_t>(ptx::address(plugfest_1, 0), plugfest_2, "
            "plugfest_3)); ");
  EXPECT_EQ(calls("red.release.gpu.max.s32 [%0], 1;", 1),
            "ptx::update<std::int32_t>(ptx::Max(), ptx::address(plugfest_0, 0), 1); ");
}

TEST(PtxTable, HasMultimem) {
  EXPECT_EQ(calls("multimem.red.release.sys.add.u32 [%0],1;", 1),
            "ptx::multimem_update<std::uint32_t>(ptx::Add(), ptx::address(plugfest_0, 0), 1); ");
  EXPECT_EQ(calls("multimem.ld_reduce.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];", 5, 4),
            "ptx::multimem_load<ptx::Halves>(ptx::Add(), ptx::address(plugfest_4, 0), plugfest_0, plugfest_1, "
            "plugfest_2, plugfest_3); ");
  EXPECT_EQ(calls("multimem.st.global.b32 [%0], %1;", 2),
            "ptx::multimem_store<std::uint32_t>(ptx::address(plugfest_0, 0), plugfest_1); ");
}

TEST(PtxTable, HasRegistersFencesAndBarriers) {
  EXPECT_EQ(calls("mov.u32 %0, %%tid.x;", 1, 1),
            "ptx::set(plugfest_0, static_cast<std::uint32_t>(plugfest_kernel_thread_index()->x)); ");
  EXPECT_EQ(calls("mov.b64 {%0,%1}, %2;", 3, 2), "ptx::unpack<std::uint64_t>(plugfest_2, plugfest_0, plugfest_1); ");
  EXPECT_EQ(calls("mov.b64 %0, {%1,%2};", 3, 1), "ptx::pack<std::uint64_t>(plugfest_0, plugfest_1, plugfest_2); ");
  EXPECT_EQ(calls("fence.acq_rel.sys; membar.gl;", 0), "__threadfence_system(); __threadfence_system(); ");
  EXPECT_EQ(
      calls("bar.sync %0, %1;", 2),
      "plugfest_kernel_barrier(ptx::get<unsigned>(plugfest_0), ptx::get<unsigned>(plugfest_1), {\"my.cu\", 3}); ");
}

TEST(PtxTable, RefusesWhatItDoesNotKnow) {
  for (const char* const text : {"wgmma.fence.sync.aligned;",
                                 "ld.u32 %0, [%7];",
                                 "ld.u128 %0, [%1];",
                                 "ld.odd.u32 %0, [%1];",
                                 "ld.u32 %0;",
                                 "ld.v2.u32 {%0,%1,%0}, [%1];",
                                 "st.u32 [%0], {%1",
                                 "mov.u32 %0, %%nothing;",
                                 "mov.u32 %0, %%tid;",
                                 "mov.u32 %0, %%laneid.x;",
                                 "mov.u32 %0, %%tid.w;",
                                 "red.u32 [%0], %1;",
                                 "red.add.v2.f32 [%0], {%0,%1};",
                                 "atom.cas.add.b32 %0, [%1], %0;",
                                 "multimem;",
                                 "multimem.st.add.u32 [%0], %1;",
                                 "multimem.ld_reduce.u32 %0, [%1];",
                                 "{ .reg .pred p; }",
                                 "@p bra L;",
                                 "bar.sync;",
                                 "bar.red.and.pred %0, %1;",
                                 ".",
                                 "mov",
                                 "cvta;",
                                 "mov %0, %1;"})
    EXPECT_EQ(calls(text, 2, 1), "unknown") << text;
}

}  // namespace
}  // namespace plugfest::kernels::front
