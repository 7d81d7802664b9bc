// The rewriter: its input and output.
#include "harness/kernels/front/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/kernels/front/tokens.h"

namespace plugfest::kernels::front {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::string& text) {
  try {
    return "no error: " + rewrite(text);
  } catch (const SourceError& error) {
    return error.what();
  }
}

TEST(Launch, BecomesConfigurationAndCall) {
  EXPECT_EQ(rewrite("f<<<1, 32>>>(a, b);"), "(::plugfest::kernels::configure(1, 32), f(a, b));");
  EXPECT_EQ(rewrite("if (x) f<<<g, b, 4 * n, s>>>();"),
            "if (x) (::plugfest::kernels::configure(g, b, 4 * n, s), f());");
}

TEST(Launch, TakesWholeNameOfKernel) {
  EXPECT_EQ(rewrite("return a::b::f<<<1, 2>>>();"), "return (::plugfest::kernels::configure(1, 2), a::b::f());");
  EXPECT_EQ(rewrite("{ ::f<<<1, 2>>>(); }"), "{ (::plugfest::kernels::configure(1, 2), ::f()); }");
  EXPECT_EQ(rewrite("return ::f<<<1, 2>>>();"), "return (::plugfest::kernels::configure(1, 2), ::f());");
  EXPECT_EQ(rewrite("x(); f<float, 4><<<1, 2>>>();"), "x(); (::plugfest::kernels::configure(1, 2), f<float, 4>());");
  EXPECT_EQ(rewrite("; f<a<b<int>>, (x > 3)><<<1, 2>>>();"),
            "; (::plugfest::kernels::configure(1, 2), f<a<b<int>>, (x > 3)>());");
  EXPECT_EQ(rewrite("; A<T>::template f<U><<<1, 2>>>();"),
            "; (::plugfest::kernels::configure(1, 2), A<T>::template f<U>());");
  EXPECT_EQ(rewrite("(*f)<<<1, 2>>>(3);"), "(::plugfest::kernels::configure(1, 2), (*f)(3));");
  EXPECT_EQ(rewrite("; a.list[i]<<<1, 2>>>(3);"), "; (::plugfest::kernels::configure(1, 2), a.list[i](3));");
}

TEST(Launch, ConfigurationContainsShiftsComparisonsAndTemplates) {
  EXPECT_EQ(rewrite("f<<<n >> 2, (m >> 3) << 1>>>();"),
            "(::plugfest::kernels::configure(n >> 2, (m >> 3) << 1), f());");
  EXPECT_EQ(rewrite("f<<<n < 5 ? 1 : 2, 32>>>();"), "(::plugfest::kernels::configure(n < 5 ? 1 : 2, 32), f());");
  EXPECT_EQ(rewrite("f<<<g<a<b<int>>>(n), 1>>>();"), "(::plugfest::kernels::configure(g<a<b<int>>>(n), 1), f());");
}

TEST(Launch, OtherAngleBracketsStay) {
  for (const char* const text : {
           "a<b<<3>>(c);",
           "x = a << 3 >> c;",
           "std::vector<std::vector<std::vector<int>>> v(3);",
           "operator<<<int>(stream, 3);",
           R"-(s = "f<<<1, 2>>>(3)";)-",
           "s = R\"x(f<<<1, 2>>>(3) \" )x\";",
           "// f<<<1, 2>>>(3)\n",
           "/* f<<<1, 2>>>(3) */",
           "c = '<', d = '\\'', e = 1'000 << 2;",
       })
    EXPECT_EQ(rewrite(text), text);
}

TEST(Launch, KeepsLinesOfFollowingText) {
  const std::string text = rewrite("# 7 \"my.cu\"\nf<<<1,\n  2>>>(a,\n b);\nlast();\n");
  EXPECT_EQ(text, "# 7 \"my.cu\"\n(::plugfest::kernels::configure(1, 2), f\n# 8 \"my.cu\"\n(a,\n b));\nlast();\n");
}

TEST(Launch, ReportsWhatIsIncomplete) {
  EXPECT_EQ(error_of("# 3 \"my.cu\"\nf<<<1, 2;\n"), "my.cu:3: this <<< has no >>>");
  EXPECT_EQ(error_of("# 3 \"my.cu\"\nf<<<1, 2>>>;\n"), "my.cu:3: expected ( after >>>: the arguments of the kernel");
  EXPECT_EQ(error_of("# 3 \"my.cu\"\n+<<<1, 2>>>();\n"), "my.cu:3: expected the name of a kernel before <<<");
  EXPECT_EQ(error_of("# 3 \"my.cu\"\nf<<<1, 2>>>(;\n"), "my.cu:3: this ( is not closed");
  EXPECT_EQ(error_of("# 3 \"my.cu\"\nf(\"a\n"), "my.cu:3: this string or character has no end");
}

TEST(Kernel, BodyBecomesFunctionOfOneThread) {
  EXPECT_EQ(rewrite("__global__ void f(int a) { g(a); }"),
            "  void f(int a) { ::plugfest::kernels::enter(\"f\", [=]() mutable { g(a); }); }");
  EXPECT_EQ(
      rewrite("template <class T> static __global__ __attribute__((x(1))) void f(std::vector<T> a) { if (a) { } }"),
      "template <class T> static   __attribute__((x(1))) void f(std::vector<T> a) { ::plugfest::kernels::enter(\"f\", "
      "[=]() mutable { if (a) { } }); }");
  EXPECT_EQ(
      rewrite("template <int n> __global__ std::enable_if_t<(n > 2)> f() { }"),
      "template <int n>   std::enable_if_t<(n > 2)> f() { ::plugfest::kernels::enter(\"f\", [=]() mutable { }); }");
}

TEST(Kernel, DeclarationStays) { EXPECT_EQ(rewrite("__global__ void f(int a);"), "  void f(int a);"); }

TEST(HeadersOfNccl, GetATypenameThatNvidiasCompilerDoesNotNeed) {
  EXPECT_EQ(rewrite("Optional(args, IntSeqUpTo<sizeof...(Arg), 0>::Type())"),
            "Optional(args, typename IntSeqUpTo<sizeof...(Arg), 0>::Type())");
  for (const std::string text : {"struct IntSeqUpTo;", "using T = typename IntSeqUpTo<1>::Type;"})
    EXPECT_EQ(rewrite(text), text);
}

TEST(HeadersOfNccl, TellWhatTheirFunctionsWaitFor) {
  EXPECT_EQ(
      rewrite("# 1 \"/x/gin__funcs.h\"\nvoid A<b>::waitSignal(Coop coop, int signal) const { coop.sync(); }"),
      "# 1 \"/x/gin__funcs.h\"\nvoid A<b>::waitSignal(Coop coop, int signal) const { "
      "::plugfest::kernels::Expects plugfest_expects(\"signal {} of context {}\", signal, this->contextId, least); "
      "coop.sync(); }");
  for (const std::string text : {"# 1 \"/x/gin__funcs.h\"\nvoid waitSignal(Coop coop) const; { a.waitSignal(coop); }",
                                 "# 1 \"/x/my.cu\"\nvoid waitSignal(int) { }"})
    EXPECT_EQ(rewrite(text), text);
}

TEST(SharedMemory, BelongsToThreadOfBlock) {
  EXPECT_EQ(rewrite("{ __shared__ float a[2], b; }"), "{ static thread_local float a[2], b; }");
  EXPECT_EQ(rewrite("{ static __shared__ int a; }"), "{ static thread_local int a; }");
  EXPECT_EQ(rewrite("{ __shared__ alignas(16) int a; }"),
            "{ static thread_local __attribute__((aligned(16))) int a; }");
}

TEST(SharedMemory, ComesFromTheLaunchIfDynamic) {
  EXPECT_THAT(rewrite("void f() { extern __shared__ float a[]; }"),
              HasSubstr("float (&a)[] = *reinterpret_cast<float (*)[]>(plugfest_kernel_dynamic_shared());"));
  EXPECT_THAT(rewrite("void f() { extern __shared__ __attribute__((aligned(16))) unsigned char a[]; }"),
              HasSubstr("unsigned char (&a)[] ="));
  EXPECT_THAT(rewrite("namespace { extern __shared__ float a[]; } int* f() { return (int*)(a); }"),
              HasSubstr("static const ::plugfest::kernels::DynamicShared<float > a{};"));
  EXPECT_EQ(error_of("# 5 \"my.cu\"\nextern __shared__ float a[4];"),
            "my.cu:5: expected one array without a size, as in extern __shared__ float name[];");
}

TEST(BuiltinVariables, GetTheirTypeWhereAMemberIsRead) {
  EXPECT_EQ(rewrite("int i = threadIdx.x + c.gridDim.y;"),
            "int i = ::plugfest::kernels::value(threadIdx).x + c.gridDim.y;");
  EXPECT_EQ(rewrite("a = b?0:threadIdx.x;"), "a = b?0: ::plugfest::kernels::value(threadIdx).x;");
  EXPECT_EQ(rewrite("dim3 gridDim(4), b = blockDim;"), "dim3 gridDim(4), b = blockDim;");
}

TEST(Assembly, BecomesCallsForKnownInstructions) {
  EXPECT_EQ(rewrite("asm(\"mov.u32 %0, %%laneid;\" : \"=r\"(a));"),
            "do { auto& plugfest_0 = (a); ::plugfest::kernels::ptx::set(plugfest_0, "
            "static_cast<std::uint32_t>(plugfest_kernel_lane())); } while (false);");
  EXPECT_THAT(rewrite("asm volatile(\"red.relaxed.cta.add.u64 [%0],%1;\" :: \"l\"(p + i), \"l\"(d) : \"memory\");"),
              HasSubstr("::plugfest::kernels::ptx::update<std::uint64_t>(::plugfest::kernels::ptx::Add(), "
                        "::plugfest::kernels::ptx::address(plugfest_0, 0), plugfest_1);"));
}

TEST(Assembly, BecomesAnErrorForAnUnknownInstruction) {
  EXPECT_THAT(rewrite("# 9 \"my.cu\"\nasm volatile(\"wgmma.fence \" \"%0;\" :: \"r\"(1));"),
              HasSubstr("error(\"asm \\\"wgmma.fence %0;\\\": this PTX instruction is not emulated\")"));
}

TEST(Assembly, StaysUnchangedInHostCode) {
  for (const char* const text : {
           "int f(int) asm(\"g\");",
           "int f(int) __asm__(\"\" \"g\") __attribute__((x));",
           "asm volatile(\"\" ::: \"memory\");",
           "asm(\"bswap %0\" : \"=r\"(a) : \"0\"(a));",
           "# 3 \"/usr/include/x.h\" 3\nasm(\"pause;\");",
       })
    EXPECT_EQ(rewrite(text), text);
}

TEST(Pragmas, AreRemovedIfTheyUnrollLoops) {
  EXPECT_EQ(rewrite("#pragma unroll 4\nfor (;;) {}\n#pragma once\n"), "\nfor (;;) {}\n#pragma once\n");
}

}  // namespace
}  // namespace plugfest::kernels::front
