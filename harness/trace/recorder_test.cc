// libnccl-profiler-plugfest.so, called as NCCL calls it, and the reader of its files.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fabric/system/file.h"
#include "fabric/system/testing.h"
#include "harness/abi/net.h"
#include "harness/abi/profiler.h"
#include "harness/trace/recorder/descriptor.h"
#include "harness/trace/recorder/older_descriptors.h"
#include "harness/trace/recording.h"
#include "test_paths.h"

namespace plugfest::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Table = abi::ProfilerV5;
using Event = Descriptor<std::uint64_t>;

constexpr std::uint64_t kCommunicator = 0xabcdef0123456789;

// A communicator of a process that has loaded the library.
class Nccl {
 public:
  Nccl() {
    void* const library = ::dlopen(PLUGFEST_RECORDER, RTLD_NOW);
    table_ = static_cast<Table*>(::dlsym(library, "ncclProfiler_v6"));
    table_->init(&context_, kCommunicator, &mask, "a name of more than sixteen characters", 3, 3, 1, nullptr);
  }
  void* start(std::uint64_t type, void* parent = nullptr, const std::function<void(Event&)>& set = {}) const {
    Event event{};
    event.type = type;
    event.parentObj = parent;
    if (set) set(event);
    void* handle = context_;
    table_->startEvent(context_, &handle, &event);
    return handle;
  }
  void record(void* handle, int state, std::uint64_t value) const { table_->recordEventState(handle, state, &value); }
  void stop(void* handle) const { table_->stopEvent(handle); }
  void finalize() const { table_->finalize(context_); }

  int mask = 0;

 private:
  Table* table_ = nullptr;
  void* context_ = nullptr;
};

class Recorder : public testing::Test {
 protected:
  // Runs `body` in a process of its own, because the library writes one file for each process. Returns what it printed.
  std::string run(const std::function<void()>& body, const std::string& folder) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(120);  // ends a child that never ends
      ::setenv("PLUGFEST_TRACE_FOLDER", folder.c_str(), 1);
      ::setenv("NCCL_HOSTID", "a/b", 1);
      ::dup2(::open((folder_ / "output").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      body();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return read_file(folder_ / "output");
  }
  std::string run(const std::function<void()>& body) { return run(body, made("recordings")); }
  std::string made(const std::string& name) {
    std::filesystem::create_directories(folder_ / name);
    return folder_ / name;
  }
  std::vector<std::string> files() {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(made("recordings"))) paths.push_back(entry.path());
    return paths;
  }

  ScratchFolder folder_;
};

// What the calling thread has waited for a processor, in nanoseconds.
std::uint64_t waited_ns() {
  std::uint64_t ran = 0, waited = 0;
  std::ifstream("/proc/thread-self/schedstat") >> ran >> waited;
  return waited;
}

void play_a_send(const Nccl& nccl) {
  void* const task = nccl.start(abi::kProfileColl, nullptr, [](Event& event) {
    event.coll.seqNumber = 7;
    event.coll.func = "AllReduce";
    event.coll.count = 1024;
    event.coll.datatype = "ncclFloat32";
  });
  nccl.stop(task);
  void* const operation = nccl.start(abi::kProfileProxyOp, task, [](Event& event) {
    event.proxyOp.pid = ::getpid();
    event.proxyOp.peer = 2;
    event.proxyOp.isSend = 1;
  });
  void* const step = nccl.start(abi::kProfileProxyStep, operation, [](Event& event) { event.proxyStep.step = 5; });
  nccl.record(step, abi::kStateSendGpuWait, 0);
  for (int poll = 0; poll < 3; ++poll) nccl.record(step, abi::kStateSendPeerWait, 0);
  nccl.record(step, abi::kStateSendWait, 4096);
  nccl.stop(step);
  nccl.stop(operation);
}

// Calls a table of v1 to v3: init, a collective and its send.
template <typename Older>
void play_older(const char* symbol, const std::function<void(Older&)>& set) {
  const auto& table = *static_cast<abi::ProfilerV1*>(::dlsym(::dlopen(PLUGFEST_RECORDER, RTLD_NOW), symbol));
  void* context = nullptr;
  int mask = 0;
  table.init(&context, &mask);
  Older event{};
  event.type = abi::kProfileColl;
  event.rank = 2;
  event.coll.name = "world";
  event.coll.commHash = kCommunicator;
  event.coll.count = 1024;
  set(event);
  void* task = nullptr;
  table.startEvent(context, &task, &event);
  Older operation{};
  operation.type = abi::kProfileProxyOp;
  operation.parentObj = task;
  operation.proxyOp.pid = ::getpid();
  operation.proxyOp.peer = 1;
  void* proxy = nullptr;
  table.startEvent(context, &proxy, &operation);
  table.stopEvent(proxy);
  table.stopEvent(task);
  table.finalize(context);
}

TEST_F(Recorder, LearnsTheCommunicatorOfAnOlderVersionFromItsFirstOperation) {
  run([] { play_older<DescriptorV3>("ncclProfiler_v3", [](auto& event) { event.coll.func = "AllReduce"; }); });
  run([] {
    constexpr std::uint8_t kAllReduce = 4, kFloat32 = 7;
    play_older<DescriptorV1>("ncclProfiler_v1", [](auto& event) {
      event.coll.func = kAllReduce;
      event.coll.datatype = kFloat32;
    });
  });
  ASSERT_THAT(files(), SizeIs(2));
  std::vector<std::string> datatypes;
  for (const std::string& file : files()) {
    const Recording recording = read_recording(file);
    ASSERT_THAT(recording.communicators, SizeIs(1));
    const Attributes& communicator = recording.communicators.begin()->second;
    EXPECT_EQ(static_cast<std::uint64_t>(communicator.number(Key::kId)), kCommunicator);
    EXPECT_EQ(communicator.number(Key::kRank), 2);
    EXPECT_EQ(communicator.text(Key::kName), "world");
    ASSERT_THAT(recording.events, SizeIs(2));
    EXPECT_EQ(recording.events[0].attributes.text(Key::kFunction), "AllReduce");
    EXPECT_EQ(recording.events[0].attributes.number(Key::kCount), 1024);
    EXPECT_EQ(recording.events[1].parent, recording.events[0].id);
    EXPECT_EQ(recording.events[1].attributes.number(Key::kPeer), 1);
    datatypes.push_back(recording.events[0].attributes.text(Key::kDatatype));
  }
  EXPECT_THAT(datatypes, testing::UnorderedElementsAre("", "ncclFloat32"));
}

TEST_F(Recorder, WritesHowLongAThreadWaitedForAProcessor) {
  if (!std::ifstream("/proc/thread-self/schedstat")) GTEST_SKIP() << "the kernel has no /proc/thread-self/schedstat";
  run([] {
    const Nccl nccl;
    cpu_set_t one_processor;
    CPU_ZERO(&one_processor);
    CPU_SET(::sched_getcpu(), &one_processor);
    ::sched_setaffinity(0, sizeof one_processor, &one_processor);
    std::atomic<bool> ended = false;
    std::thread rival([&] {
      while (!ended) {
      }
    });
    nccl.stop(nccl.start(abi::kProfileGroupApi));
    for (const std::uint64_t before = waited_ns(); waited_ns() < before + 20'000'000;)
      nccl.stop(nccl.start(abi::kProfileGroupApi));
    nccl.stop(nccl.start(abi::kProfileGroupApi));  // the thread may have waited after the last event
    ended = true;
    rival.join();
    nccl.finalize();
  });
  ASSERT_THAT(files(), SizeIs(1));
  std::int64_t waited = 0;
  for (const RecordedProcessorWait& wait : read_recording(files().front()).processor_waits) {
    EXPECT_LT(wait.start_ns, wait.stop_ns);
    EXPECT_LE(wait.waited_ns, wait.stop_ns - wait.start_ns);
    EXPECT_EQ(wait.thread, 1u);
    waited += wait.waited_ns;
  }
  EXPECT_GE(waited, 10'000'000);
}

TEST_F(Recorder, WritesEventsWithTheirAttributesAndStates) {
  EXPECT_EQ(run([] {
              const Nccl nccl;
              if (nccl.mask != 0x7fdf) ::_exit(1);
              play_a_send(nccl);
              nccl.finalize();
            }),
            "");
  ASSERT_THAT(files(), SizeIs(1));
  EXPECT_THAT(files().front(), HasSubstr("/a_b-"));
  const Recording recording = read_recording(files().front());
  EXPECT_EQ(recording.host, "a/b");
  ASSERT_THAT(recording.communicators, SizeIs(1));
  const Attributes& communicator = recording.communicators.begin()->second;
  EXPECT_EQ(static_cast<std::uint64_t>(communicator.number(Key::kId)), kCommunicator);
  EXPECT_EQ(communicator.text(Key::kName), "a name of more than sixteen characters");
  ASSERT_THAT(recording.events, SizeIs(3));
  EXPECT_EQ(recording.events[0].attributes.text(Key::kFunction), "AllReduce");
  EXPECT_EQ(recording.events[0].attributes.number(Key::kSequence), 7);
  EXPECT_EQ(recording.events[1].parent, recording.events[0].id);
  EXPECT_EQ(recording.events[1].attributes.number(Key::kPeer), 2);
  const RecordedEvent& step = recording.events[2];
  EXPECT_EQ(step.parent, recording.events[1].id);
  EXPECT_GE(step.stop_ns, step.start_ns);
  ASSERT_THAT(step.states, SizeIs(3)) << "the repeated state is recorded once";
  EXPECT_EQ(step.states[1].state, abi::kStateSendPeerWait);
  EXPECT_EQ(step.states[2].value, 4096u);
}

// A net plugin that refuses its first isend, and whose requests are done at their second test.
namespace net_plugin {
int g_posts = 0, g_tests = 0;
abi::Result isend(void*, void*, std::size_t, int, void*, void*, void** request) {
  *request = g_posts++ == 0 ? nullptr : &g_posts;
  return abi::Result::kSuccess;
}
abi::Result irecv(void*, int, void**, int*, int*, void**, void** request) {
  *request = &g_tests;
  return abi::Result::kSuccess;
}
abi::Result test(void*, int* done, int*) {
  *done = ++g_tests % 2 == 0 ? 1 : 0;
  return abi::Result::kSuccess;
}
}  // namespace net_plugin

using RecordCalls = void* (*)(const char*, void*);
RecordCalls record_calls() {
  return reinterpret_cast<RecordCalls>(::dlsym(::dlopen(PLUGFEST_RECORDER, RTLD_NOW), "plugfest_record_calls"));
}

TEST_F(Recorder, WritesTheCallsOfANetPluginUnderTheirSteps) {
  run([] {
    const Nccl nccl;
    abi::v11::Net plugin{};
    plugin.isend = net_plugin::isend;
    plugin.test = net_plugin::test;
    auto& net = *static_cast<abi::v11::Net*>(record_calls()("ncclNetPlugin_v11", &plugin));
    void* const step = nccl.start(abi::kProfileProxyStep);
    void* request = nullptr;
    for (int i = 0; i < 2; ++i) net.isend(nullptr, nullptr, 4096, 0, nullptr, nullptr, &request);
    nccl.record(step, abi::kStateSendWait, 4096);
    int done = 0;
    for (int i = 0; i < 2; ++i) net.test(request, &done, nullptr);
    nccl.finalize();
  });
  const Recording recording = read_recording(files().front());
  ASSERT_THAT(recording.events, SizeIs(2));
  const RecordedEvent& call = recording.events[1];
  EXPECT_EQ(call.bit, kPluginCall);
  EXPECT_EQ(call.parent, recording.events[0].id);
  EXPECT_GE(call.stop_ns, call.start_ns);
  EXPECT_EQ(call.attributes.text(Key::kFunction), "isend");
  EXPECT_EQ(call.attributes.number(Key::kBytes), 4096);
  EXPECT_EQ(call.attributes.number(Key::kRefusals), 1);
  EXPECT_EQ(call.attributes.number(Key::kTests), 2);
  EXPECT_GE(call.attributes.number(Key::kPluginNs, -1), 0);
}

TEST_F(Recorder, WritesAReceiveOfSeveralBuffersUnderEachOfItsSteps) {
  run([] {
    const Nccl nccl;
    abi::v8::Net plugin{};
    plugin.irecv = net_plugin::irecv;
    plugin.test = net_plugin::test;
    auto& net = *static_cast<abi::v8::Net*>(record_calls()("ncclNetPlugin_v8", &plugin));
    int sizes[] = {100, 200}, done = 0;
    void* request = nullptr;
    void* const steps[] = {nccl.start(abi::kProfileProxyStep), nccl.start(abi::kProfileProxyStep)};
    net.irecv(nullptr, 2, nullptr, sizes, nullptr, nullptr, &request);
    for (void* const step : steps) nccl.record(step, abi::kStateRecvWait, 0);
    for (int i = 0; i < 2; ++i) net.test(request, &done, nullptr);
    nccl.finalize();
  });
  const Recording recording = read_recording(files().front());
  ASSERT_THAT(recording.events, SizeIs(4));
  for (const std::size_t step : {0u, 1u}) {
    EXPECT_EQ(recording.events[step + 2].parent, recording.events[step].id);
    EXPECT_EQ(recording.events[step + 2].attributes.number(Key::kBytes), 300);
    EXPECT_NE(recording.events[step + 2].stop_ns, 0);
  }
}

TEST_F(Recorder, LeavesOtherTablesUnchanged) {
  run([] {
    abi::v11::Net plugin{};
    if (record_calls()("ncclTunerPlugin_v4", &plugin) != &plugin) ::_exit(1);
    if (record_calls()("ncclNetPlugin_v11", &plugin) == &plugin) ::_exit(2);
    if (record_calls()("ncclNetPlugin_v11", &plugin) != &plugin) ::_exit(3);  // the second one
  });
}

TEST_F(Recorder, LosesNothingThatItsThreadsReportAtTheSameTime) {
  constexpr int kThreads = 4, kEvents = 5000;
  run([] {
    const Nccl nccl;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        for (int event = 0; event < kEvents; ++event) nccl.stop(nccl.start(abi::kProfileGroup));
      });
    for (std::thread& thread : threads) thread.join();
    nccl.finalize();
  });
  const Recording recording = read_recording(files().front());
  EXPECT_THAT(recording.events, SizeIs(kThreads * kEvents));
  for (const RecordedEvent& event : recording.events) EXPECT_NE(event.stop_ns, 0);
}

TEST_F(Recorder, WritesTheEventsOfAProgramThatClosesNoCommunicator) {
  run([] {
    const Nccl nccl;
    nccl.start(abi::kProfileGroup);
    std::exit(0);
  });
  EXPECT_THAT(read_recording(files().front()).events, SizeIs(1));
}

TEST_F(Recorder, AForkedChildWritesNothing) {
  const std::string output = run([] {
    const Nccl nccl;
    play_a_send(nccl);
    const pid_t child = ::fork();
    if (child == 0) {
      if (nccl.start(abi::kProfileGroup) != nullptr || Nccl().mask != 0) ::_exit(1);
      std::exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) ::_exit(1);
    nccl.stop(nccl.start(abi::kProfileGroup));
    nccl.finalize();
  });
  EXPECT_EQ(output,
            "plugfest recorder: this process was forked after NCCL had been initialized; NCCL continues without a "
            "recording\n");
  ASSERT_THAT(files(), SizeIs(1));
  const Recording recording = read_recording(files().front());
  ASSERT_THAT(recording.events, SizeIs(4));
  EXPECT_EQ(recording.events[0].attributes.text(Key::kFunction), "AllReduce");
  EXPECT_THAT(recording.events[2].states, SizeIs(3));
}

TEST_F(Recorder, AThreadThatGaveItsBufferBackTakesOneAgain) {
  struct Late {
    const Nccl* nccl = nullptr;
    ~Late() { nccl->stop(nccl->start(abi::kProfileGroup)); }
  };
  run([] {
    const Nccl nccl;
    std::thread([&] {
      thread_local Late late;  // made before the library's object of the thread, so destroyed after it
      late.nccl = &nccl;
      nccl.stop(nccl.start(abi::kProfileGroup));
    }).join();
    nccl.finalize();
  });
  const Recording recording = read_recording(files().front());
  ASSERT_THAT(recording.events, SizeIs(2));
  EXPECT_NE(recording.events[0].thread(), recording.events[1].thread());
}

TEST_F(Recorder, DoesNotNameParentsOfOtherProcesses) {
  run([] {
    const Nccl nccl;
    nccl.start(abi::kProfileProxyOp, reinterpret_cast<void*>(0x1234), [](Event& event) { event.proxyOp.pid = 1; });
    nccl.finalize();
  });
  const Recording recording = read_recording(files().front());
  EXPECT_EQ(recording.events.at(0).parent, 0u);
  EXPECT_EQ(recording.events.at(0).attributes.number(Key::kPid), 1);
}

TEST_F(Recorder, LetsNcclContinueWithoutAFolder) {
  const auto body = [] {
    for (int i = 0; i < 2; ++i) {
      const Nccl nccl;
      if (nccl.mask != 0 || nccl.start(abi::kProfileGroup) != nullptr) ::_exit(1);
      nccl.finalize();
    }
  };
  EXPECT_EQ(run(body, ""),
            "plugfest recorder: PLUGFEST_TRACE_FOLDER is not set: set it to a folder for the files of all ranks; NCCL "
            "continues without a recording\n");
  EXPECT_THAT(run(body, "/missing"),
              testing::MatchesRegex("plugfest recorder: /missing/a_b-[0-9]+.recording: cannot write: No such file or "
                                    "directory; NCCL continues without a recording\n"));
}

TEST_F(Recorder, LetsNcclContinueIfTheDiskIsFull) {
  const std::string output = run([] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Nccl nccl;
    for (int i = 0; i < 10'000; ++i) nccl.stop(nccl.start(abi::kProfileGroup));
    if (nccl.start(abi::kProfileGroup) != nullptr) ::_exit(1);
    nccl.finalize();
  });
  EXPECT_THAT(output, testing::MatchesRegex("plugfest recorder: .*.recording: cannot write: File too large; NCCL "
                                            "continues without a recording\n"));
  EXPECT_THAT(read_recording(files().front()).events, testing::Not(testing::IsEmpty()));
}

TEST_F(Recorder, FilesMayBeCutAnywhere) {
  run([] {
    const Nccl nccl;
    play_a_send(nccl);
    nccl.finalize();
  });
  const std::string path = files().front(), content = read_file(path), cut = folder_ / "cut";
  for (std::size_t size = sizeof(FileHeader); size <= content.size(); ++size) {
    std::ofstream(cut, std::ios::binary) << content.substr(0, size);
    EXPECT_LE(read_recording(cut).events.size(), 3u);
  }
  std::ofstream(cut, std::ios::binary) << content.substr(0, sizeof(FileHeader) - 1);
  try {
    read_recording(cut);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), cut + ": not a file of libnccl-profiler-plugfest.so");
  }
}

TEST(Recording, RefusesAnImpossibleTime) {
  const ScratchFolder folder;
  const std::string path = (folder / "x.recording").string();
  FileHeader header{};
  std::memcpy(header.magic, kRecordingMagic, sizeof kRecordingMagic);
  Record record{};
  record.kind = RecordKind::kStart;
  record.time_ns = std::numeric_limits<std::int64_t>::max();
  const auto refusal = [&] {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(&header), sizeof header)
        .write(reinterpret_cast<const char*>(&record), sizeof record);
    return error_message([&] { read_recording(path); });
  };
  EXPECT_EQ(refusal(), path + ": offset 256: an impossible time");
  record.kind = RecordKind::kProcessorWait;
  record.time_ns = 0;
  record.value = std::uint64_t{1} << 61;  // the nanoseconds of the wait
  EXPECT_EQ(refusal(), path + ": offset 256: an impossible time");
  record.value = 0;
  EXPECT_EQ(refusal(), "no error");
  header.realtime_ns = -1;
  EXPECT_EQ(refusal(), path + ": offset 0: an impossible time");
}

}  // namespace
}  // namespace plugfest::trace
