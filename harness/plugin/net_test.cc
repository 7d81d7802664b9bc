// Arguments and results of a plugin of each version behind the one interface.
#include "harness/plugin/net.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <type_traits>

namespace plugfest::plugin {
namespace {

using abi::Result;
namespace newest = abi::newest;

void* const kCtx = reinterpret_cast<void*>(0x1001);
void* const kComm = reinterpret_cast<void*>(0x1002);
void* const kMhandle = reinterpret_cast<void*>(0x1003);
void* const kPhandle = reinterpret_cast<void*>(0x1004);
void* const kRequest = reinterpret_cast<void*>(0x1005);
constexpr std::size_t kGiB = std::size_t{1} << 30;

// The arguments of the latest call.
struct Seen {
  int inits = 0;
  int calls = 0;
  void* ctx = nullptr;
  void* phandle = nullptr;
  int traffic_class = 0;
  std::size_t size = 0;
  int n = 0;
  void* request_before = nullptr;
  const int* narrow_sizes = nullptr;
  abi::DeviceHandle** device_handle = nullptr;
  bool finalized = false;
  Result answer = Result::kSuccess;
};
Seen seen;

// The functions of all versions. They record their arguments.
struct Fake {
  static Result init(abi::Logger) { return ++seen.inits, seen.answer; }
  static Result init(abi::Logger, abi::ProfilerCallback) { return ++seen.inits, seen.answer; }
  static Result init(void** ctx, std::uint64_t, newest::CommConfig* config, abi::Logger, abi::ProfilerCallback) {
    seen.traffic_class = config->trafficClass;
    return ++seen.inits, *ctx = kCtx, seen.answer;
  }
  static Result devices(int* n) { return *n = 3, seen.answer; }
  template <typename P>
  static Result properties(int device, P* p) {
    p->speed = 100 + device;
    if constexpr (requires { p->vProps; }) p->vProps.ndevs = 64;
    if constexpr (requires { p->planeId; }) p->planeId = 7;
    return seen.answer;
  }
  static Result listen(int, void*, void**) { return seen.answer; }
  static Result listen(void* ctx, int, void*, void**) { return seen.ctx = ctx, seen.answer; }
  static Result connect(int, void*, void**) { return ++seen.calls, seen.answer; }
  static Result connect(int, void*, void**, abi::DeviceHandle** handle) {
    return seen.device_handle = handle, seen.answer;
  }
  static Result connect(int, abi::v10::CommConfig* config, void*, void**, abi::DeviceHandle** handle) {
    seen.traffic_class = config->trafficClass;
    return seen.device_handle = handle, seen.answer;
  }
  static Result connect(void* ctx, int, void*, void**, abi::DeviceHandle** handle) {
    return seen.ctx = ctx, seen.device_handle = handle, seen.answer;
  }
  static Result accept(void*, void**) { return ++seen.calls, seen.answer; }
  static Result accept(void*, void**, abi::DeviceHandle** handle) { return seen.device_handle = handle, seen.answer; }
  template <typename Size>
  static Result reg_mr(void*, void*, Size size, int, void**) {
    return ++seen.calls, seen.size = static_cast<std::size_t>(size), seen.answer;
  }
  static Result reg_dmabuf(void*, void*, std::size_t, int, std::uint64_t, int, void**) { return seen.answer; }
  static Result dereg_mr(void*, void*) { return seen.answer; }
  template <typename Size>
  static Result isend(void*, void*, Size size, int, void*, void**) {
    return ++seen.calls, seen.size = static_cast<std::size_t>(size), seen.answer;
  }
  static Result isend(void*, void*, std::size_t size, int, void*, void* phandle, void**) {
    return ++seen.calls, seen.size = size, seen.phandle = phandle, seen.answer;
  }
  template <typename Size>
  static Result irecv(void*, int n, void**, Size* sizes, int*, void**, void** request) {
    if constexpr (std::is_same_v<Size, int>) seen.narrow_sizes = sizes;
    seen.n = n;
    seen.request_before = *request;
    return ++seen.calls, seen.size = static_cast<std::size_t>(sizes[0]), seen.answer;
  }
  static Result irecv(void*, int n, void**, std::size_t* sizes, int*, void**, void** phandles, void** request) {
    seen.n = n;
    seen.phandle = phandles[0];
    seen.request_before = *request;
    return ++seen.calls, seen.size = sizes[0], seen.answer;
  }
  static Result iflush(void*, int, void**, int*, void**, void**) { return seen.answer; }
  static Result test(void*, int* done, int*) { return *done = 1, seen.answer; }
  static Result close(void*) { return seen.answer; }
  static Result get_device_mr(void*, void*, void**) { return seen.answer; }
  static Result consumed(void*, int n, void*) { return seen.n = n, seen.answer; }
  template <typename VDevice>
  static Result make_vdevice(int* device, VDevice* members) {
    return *device = members->devs[members->ndevs - 1], seen.answer;
  }
  static Result finalize(void* ctx) { return seen.finalized = true, seen.ctx = ctx, seen.answer; }
  static Result set_attr(void* ctx, newest::NetAttr*) { return seen.ctx = ctx, seen.answer; }
};

// A plugin of one version.
template <typename Net>
Net fake_table(const char* name) {
  Net net = {};
  net.name = name;
  net.init = Fake::init;
  net.devices = Fake::devices;
  net.getProperties = Fake::properties;
  net.listen = Fake::listen;
  net.connect = Fake::connect;
  net.accept = Fake::accept;
  net.regMr = Fake::reg_mr;
  net.regMrDmaBuf = Fake::reg_dmabuf;
  net.deregMr = Fake::dereg_mr;
  net.isend = Fake::isend;
  net.irecv = Fake::irecv;
  net.iflush = Fake::iflush;
  net.test = Fake::test;
  net.closeSend = Fake::close;
  net.closeRecv = Fake::close;
  net.closeListen = Fake::close;
  if constexpr (requires { net.getDeviceMr; }) net.getDeviceMr = Fake::get_device_mr;
  if constexpr (requires { net.irecvConsumed; }) net.irecvConsumed = Fake::consumed;
  if constexpr (requires { net.makeVDevice; }) net.makeVDevice = Fake::make_vdevice;
  if constexpr (requires { net.finalize; }) net.finalize = Fake::finalize;
  if constexpr (requires { net.setNetAttr; }) net.setNetAttr = Fake::set_attr;
  return net;
}

template <int kApi>
struct Plugin;
#define PLUGIN(api)                                                     \
  template <>                                                           \
  struct Plugin<api> {                                                  \
    abi::v##api::Net table = fake_table<abi::v##api::Net>("fake" #api); \
  };
PLUGFEST_NET_VERSIONS(PLUGIN)
#undef PLUGIN

template <typename Api>
class NetOfVersion : public testing::Test {
 protected:
  static constexpr int kApi = Api::value;
  NetOfVersion() : net(adapt(kApi, &fake.table)) { seen = {}; }

  Result init(void** context, int traffic_class = 5) {
    newest::CommConfig config{traffic_class};
    return net->init(context, 1, &config, nullptr, nullptr);
  }
  Result irecv(std::vector<std::size_t> sizes, void** request) {
    std::vector<void*> data(sizes.size()), mhandles(sizes.size()), phandles(sizes.size(), kPhandle);
    std::vector<int> tags(sizes.size());
    const Result result = net->irecv(kComm, static_cast<int>(sizes.size()), data.data(), sizes.data(), tags.data(),
                                     mhandles.data(), phandles.data(), request);
    sizes_after = sizes;
    return result;
  }

  Plugin<kApi> fake;
  std::unique_ptr<Net> net;
  std::vector<std::size_t> sizes_after;
};

template <int kApi>
using Api = std::integral_constant<int, kApi>;
struct ApiNames {
  template <typename T>
  static std::string GetName(int) {
    return "v" + std::to_string(T::value);
  }
};
using AllApis = testing::Types<Api<6>, Api<7>, Api<8>, Api<9>, Api<10>, Api<11>, Api<12>>;
TYPED_TEST_SUITE(NetOfVersion, AllApis, ApiNames);

TYPED_TEST(NetOfVersion, TellsItsVersionAndLiveName) {
  EXPECT_EQ(this->net->api(), this->kApi);
  EXPECT_EQ(this->net->table(), &this->fake.table);
  EXPECT_EQ(this->net->name(), "fake" + std::to_string(this->kApi));
  this->fake.table.name = nullptr;
  EXPECT_EQ(this->net->name(), nullptr);
}

TYPED_TEST(NetOfVersion, InitializesOldPluginsOnceAndNewOnesPerCommunicator) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(this->init(&first), Result::kSuccess);
  ASSERT_EQ(this->init(&second), Result::kSuccess);
  EXPECT_EQ(seen.inits, this->kApi <= 10 ? 1 : 2);
  EXPECT_EQ(this->net->finalize(second), Result::kSuccess);
  EXPECT_EQ(this->net->finalize(first), Result::kSuccess);
  EXPECT_EQ(seen.finalized, this->kApi >= 11);
  // With no communicator left, the next one initializes again (IN-03).
  ASSERT_EQ(this->init(&first), Result::kSuccess);
  EXPECT_EQ(seen.inits, this->kApi <= 10 ? 2 : 3);
  this->net->finalize(first);
}

TYPED_TEST(NetOfVersion, DoesNotCountAFailedInit) {
  void* context = nullptr;
  seen.answer = Result::kSystemError;
  EXPECT_EQ(this->init(&context), Result::kSystemError);
  seen.answer = Result::kSuccess;
  EXPECT_EQ(this->init(&context), Result::kSuccess);
  EXPECT_EQ(seen.inits, 2);
  this->net->finalize(context);
}

TYPED_TEST(NetOfVersion, PassesOddResultCodesAsTheyAre) {
  seen.answer = static_cast<Result>(1234);
  int n = 0;
  EXPECT_EQ(static_cast<int>(this->net->devices(&n)), 1234);
  EXPECT_EQ(static_cast<int>(this->net->dereg_mr(kComm, kMhandle)), 1234);
}

TYPED_TEST(NetOfVersion, PassesContextsFromV11AndTheTrafficClassFromV10) {
  void* context = nullptr;
  ASSERT_EQ(this->init(&context, 106), Result::kSuccess);
  this->net->connect(context, 0, nullptr, nullptr, nullptr);
  if (this->kApi >= 11)
    EXPECT_EQ(seen.ctx, kCtx);
  else
    EXPECT_EQ(context != nullptr, this->kApi == 10);
  EXPECT_EQ(seen.traffic_class, this->kApi >= 10 ? 106 : 0);
  // Each v10 communicator has its own configuration.
  void* other = nullptr;
  ASSERT_EQ(this->init(&other, 1), Result::kSuccess);
  this->net->connect(context, 0, nullptr, nullptr, nullptr);
  if (this->kApi == 10) EXPECT_EQ(seen.traffic_class, 106);
  this->net->finalize(other);
  this->net->finalize(context);
}

TYPED_TEST(NetOfVersion, PassesDeviceHandlesFromV7) {
  void* context = nullptr;
  ASSERT_EQ(this->init(&context), Result::kSuccess);
  abi::DeviceHandle* handle = nullptr;
  this->net->connect(context, 0, nullptr, nullptr, &handle);
  EXPECT_EQ(seen.device_handle, this->kApi >= 7 ? &handle : nullptr);
  seen.device_handle = nullptr;
  this->net->accept(kComm, nullptr, &handle);
  EXPECT_EQ(seen.device_handle, this->kApi >= 7 ? &handle : nullptr);
  this->net->finalize(context);
}

TYPED_TEST(NetOfVersion, RefusesSendsAboveOneGibibyteUpToV8) {
  void* request = kRequest;
  EXPECT_EQ(this->net->isend(kComm, nullptr, kGiB, 0, kMhandle, kPhandle, &request), Result::kSuccess);
  EXPECT_EQ(seen.size, kGiB);
  EXPECT_EQ(seen.phandle, this->kApi >= 10 ? kPhandle : nullptr);
  const Result result = this->net->isend(kComm, nullptr, kGiB + 1, 0, kMhandle, kPhandle, &request);
  EXPECT_EQ(result, this->kApi <= 8 ? Result::kInternalError : Result::kSuccess);
  EXPECT_EQ(seen.calls, this->kApi <= 8 ? 1 : 2);
}

TYPED_TEST(NetOfVersion, RefusesReceivesAboveOneGibibyteUpToV8) {
  void* request = nullptr;
  EXPECT_EQ(this->irecv({kGiB, 5}, &request), Result::kSuccess);
  EXPECT_EQ(seen.size, kGiB);
  EXPECT_EQ(seen.n, 2);
  const Result result = this->irecv({7, kGiB + 1}, &request);
  EXPECT_EQ(result, this->kApi <= 8 ? Result::kInternalError : Result::kSuccess);
  EXPECT_EQ(seen.calls, this->kApi <= 8 ? 1 : 2);
}

TYPED_TEST(NetOfVersion, PassesTheOptionalCompletionMarkFromV9) {
  void* const mark = reinterpret_cast<void*>(abi::kOptionalRecvCompletion);
  void* request = mark;
  this->irecv({1}, &request);
  EXPECT_EQ(seen.request_before, this->kApi >= 9 ? mark : nullptr);
  request = kRequest;
  this->irecv({1}, &request);
  EXPECT_EQ(seen.request_before, kRequest) << "any other stale value passes (XF-02)";
}

TYPED_TEST(NetOfVersion, PoisonsNarrowedSizesWhenTheCallReturns) {
  void* request = nullptr;
  this->irecv({77}, &request);
  ASSERT_EQ(seen.narrow_sizes != nullptr, this->kApi <= 8) << "v9 and later get the caller's array";
  if (seen.narrow_sizes != nullptr) EXPECT_EQ(*seen.narrow_sizes, 0x5A5A5A5A);
}

TYPED_TEST(NetOfVersion, RefusesMoreBuffersThanCoreGroupsUpToV8) {
  void* request = nullptr;
  EXPECT_EQ(this->irecv(std::vector<std::size_t>(64, 1), &request), Result::kSuccess);
  EXPECT_EQ(this->irecv(std::vector<std::size_t>(65, 1), &request),
            this->kApi <= 8 ? Result::kInternalError : Result::kSuccess);
}

TYPED_TEST(NetOfVersion, RefusesRegistrationsFromTwoGibibytesUpToV7) {
  void* mhandle = nullptr;
  EXPECT_EQ(this->net->reg_mr(kComm, nullptr, 2 * kGiB - 1, abi::kPointerHost, &mhandle), Result::kSuccess);
  EXPECT_EQ(seen.size, 2 * kGiB - 1);
  EXPECT_EQ(this->net->reg_mr(kComm, nullptr, 2 * kGiB, abi::kPointerHost, &mhandle),
            this->kApi <= 7 ? Result::kInternalError : Result::kSuccess);
}

TYPED_TEST(NetOfVersion, CompletesPropertiesAsCoreDoes) {
  newest::Properties p{};
  ASSERT_EQ(this->net->get_properties(2, &p), Result::kSuccess);
  EXPECT_EQ(p.speed, 102);
  EXPECT_EQ(p.port, 0x5A5A5A5A) << "what a plugin does not write stays visible as poison";
  EXPECT_EQ(p.netDeviceType, this->kApi >= 7 ? 0x5A5A5A5A : abi::kDeviceHost);
  EXPECT_EQ(p.regIsGlobal, this->kApi >= 8 ? 0x5A5A5A5A : 0);
  EXPECT_EQ(p.forceFlush, this->kApi >= 9 ? 0x5A5A5A5A : 0);
  EXPECT_EQ(p.vProps.ndevs, this->kApi >= 9 ? 64 : 1);
  EXPECT_EQ(p.vProps.devs[0], this->kApi >= 9 ? 0x5A5A5A5A : 2);
  if (this->kApi < 9) {
    EXPECT_EQ(p.maxP2pBytes, kGiB);
    EXPECT_EQ(p.maxCollBytes, kGiB / 2);
  }
  EXPECT_EQ(p.maxMultiRequestSize, this->kApi >= 11 ? 0x5A5A5A5A : 1);
  EXPECT_EQ(p.railId, this->kApi >= 12 ? 0x5A5A : -1);
  EXPECT_EQ(p.planeId, this->kApi >= 12 ? 7 : -1);
}

TYPED_TEST(NetOfVersion, LeavesTheResultAloneIfPropertiesFail) {
  newest::Properties p{};
  p.speed = 1;
  seen.answer = Result::kInternalError;
  EXPECT_EQ(this->net->get_properties(0, &p), Result::kInternalError);
  EXPECT_EQ(p.speed, 1);
}

TYPED_TEST(NetOfVersion, HasOptionalSlotsFromTheirVersionOn) {
  EXPECT_TRUE(this->net->has(Slot::kRegMrDmaBuf));
  EXPECT_EQ(this->net->has(Slot::kIrecvConsumed), this->kApi >= 7);
  EXPECT_EQ(this->net->has(Slot::kGetDeviceMr), this->kApi >= 7);
  EXPECT_EQ(this->net->has(Slot::kMakeVDevice), this->kApi >= 9);
  EXPECT_EQ(this->net->has(Slot::kFinalize), this->kApi >= 11);
  EXPECT_EQ(this->net->has(Slot::kSetNetAttr), this->kApi >= 11);
  EXPECT_EQ(this->net->irecv_consumed(kComm, 3, kRequest), this->kApi >= 7 ? Result::kSuccess : Result::kInternalError);
  newest::VDevice members{.ndevs = 2, .devs = {4, 6}};
  int device = -1;
  EXPECT_EQ(this->net->make_vdevice(&device, &members), this->kApi >= 9 ? Result::kSuccess : Result::kInternalError);
  EXPECT_EQ(device, this->kApi >= 9 ? 6 : -1);
  newest::NetAttr attr{};
  EXPECT_EQ(this->net->set_net_attr(kCtx, &attr), this->kApi >= 11 ? Result::kSuccess : Result::kInternalError);
}

TYPED_TEST(NetOfVersion, RefusesAnEmptyOptionalSlotWithoutACall) {
  this->fake.table.regMrDmaBuf = nullptr;
  void* context = nullptr;
  ASSERT_EQ(this->init(&context), Result::kSuccess);
  EXPECT_FALSE(this->net->has(Slot::kRegMrDmaBuf));
  void* mhandle = nullptr;
  EXPECT_EQ(this->net->reg_mr_dmabuf(kComm, nullptr, 1, abi::kPointerCuda, 0, 0, &mhandle), Result::kInternalError);
  this->net->finalize(context);
}

TYPED_TEST(NetOfVersion, CopiesOldTablesAfterInitAndReadsNewOnesLive) {
  void* context = nullptr;
  ASSERT_EQ(this->init(&context), Result::kSuccess);
  this->fake.table.regMrDmaBuf = nullptr;
  EXPECT_EQ(this->net->has(Slot::kRegMrDmaBuf), this->kApi <= 10);
  this->net->finalize(context);
}

TYPED_TEST(NetOfVersion, CoversEveryByteOfTheStructuresInItsLayout) {
  const ApiLayout& layout = this->net->layout();
  EXPECT_EQ(layout.symbol, "ncclNetPlugin_v" + std::to_string(this->kApi));
  EXPECT_EQ(layout.symbol.data()[layout.symbol.size()], '\0');
  std::size_t slot_end = sizeof(const char*);
  for (const SlotLayout& slot : layout.slots) {
    EXPECT_EQ(slot.offset, slot_end) << slot.name;
    slot_end += sizeof(void*);
  }
  EXPECT_EQ(slot_end, layout.table_size);
  std::size_t field_end = 0;
  for (const FieldLayout& field : layout.properties) {
    EXPECT_EQ(field.offset, (field_end + field.size - 1) / field.size * field.size) << field.name;
    field_end = field.offset + field.size;
  }
  EXPECT_EQ((field_end + 7) / 8 * 8, layout.properties_size);
}

TEST(Layout, ThrowsForAVersionThatDoesNotExist) {
  EXPECT_THROW(api_layout(99), std::logic_error);
  EXPECT_THROW(adapt(99, nullptr), std::logic_error);
}

TEST(Layout, NamesSingleFields) {
  const ApiLayout& layout = api_layout(9);
  const auto named = [&](std::string_view name) {
    for (const FieldLayout& field : layout.properties)
      if (field.name == name) return field;
    return FieldLayout{};
  };
  EXPECT_EQ(named("forceFlush").offset, 32U);
  EXPECT_EQ(named("vProps.ndevs").offset, 64U);
  EXPECT_EQ(named("vProps.devs[3]").offset, 80U);
  EXPECT_EQ(named("vProps.devs[3]").member, 3);
  EXPECT_EQ(named("vProps.devs[4]").size, 0U);
  EXPECT_EQ(named("latency").kind, FieldKind::kFloat);
  EXPECT_EQ(named("guid").kind, FieldKind::kUint64);
  EXPECT_EQ(named("maxP2pBytes").kind, FieldKind::kSize);
  EXPECT_EQ(named("name").kind, FieldKind::kString);
}

}  // namespace
}  // namespace plugfest::plugin
